"""The map of packages in CONTRIBUTING.md names every package, and nothing that is not there."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "CONTRIBUTING.md").read_text()
OUTSIDE = ("models", "weights")  # installed inside xverify, and listed where they stand


def the_map(text):
    """The first word of every line of the code block below the heading "Where things are"."""
    [block] = re.findall(r"^## Where things are\n.*?^```\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [line.split()[0] for line in block.splitlines()]


def packages():
    """The packages of xverify, as the map writes them."""
    found = (file.parent for file in (ROOT / "xverify").glob("*/__init__.py"))
    return {f"xverify/{folder.name}/" for folder in found if folder.name not in OUTSIDE}


def faults(text):
    """What is wrong with the map and the paths of this text: one line a fault."""
    listed = the_map(text)
    linked = re.findall(r"\b(?:xverify|tests|docs|models|weights|bench)/[\w./-]*\w[\w/]*", text)
    return [
        *(f"missing from the map: {package}" for package in sorted(packages() - set(listed))),
        *(f"twice in the map: {entry}" for entry in sorted(set(listed)) if listed.count(entry) > 1),
        *(f"is not there: {path}" for path in dict.fromkeys([*listed, *linked]) if not (ROOT / path).exists()),
    ]


def test_the_map_names_every_package_and_every_path_is_there():
    assert len(packages()) > 10
    assert faults(TEXT) == []


def test_a_missing_package_and_a_stale_path_are_found():
    [line] = [line for line in TEXT.splitlines(keepends=True) if line.startswith("xverify/verdict/ ")]
    assert faults(TEXT.replace(line, "")) == ["missing from the map: xverify/verdict/"]
    stale = TEXT.replace(line, line + line.replace("verdict", "verdicts"))
    assert faults(stale) == ["is not there: xverify/verdicts/"]
    assert faults(TEXT.replace(line, line * 2)) == ["twice in the map: xverify/verdict/"]
