"""The smallest and the largest value of every option that takes a number: on the page, and refused beyond them."""

import argparse
import re
from pathlib import Path

import pytest

from xverify.commands._main import main, parser
from xverify.workload.declaration import LARGEST, LONGEST
from xverify.workload.options import MOST_THREADS

PAGE = Path(__file__).parent.parent / "docs" / "command-line.md"


def numbers(of, path=()):
    """(the names of a command, the option) for each of its options that takes a number."""
    for action in of._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, inner in action.choices.items():
                yield from numbers(inner, (*path, word))
        option = vars(action).get("option")
        if option is not None and option.kind in (int, float):
            yield path, option


def limits(option):
    """The smallest and the largest value of an option, in the words of the page."""
    smallest = "-" if option.least is None else f"{option.least}"
    most = LARGEST if option.most is None and option.kind is int else option.most
    words = {None: "-", LARGEST: "2^53", MOST_THREADS: "1,024, or 16 for each core"}
    return smallest if option.above is None else f"above {option.above}", words.get(most) or f"{most:,}"


def test_the_limits_of_every_number_are_on_the_page():
    section = PAGE.read_text().partition("\n## Smallest and largest values\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`--.*?) \| (.*?) \| (.*?) \|$", section, re.MULTILINE)
    shown = {flag: (least, most) for names, least, most in rows for flag in re.findall(r"`(--[a-z-]+)`", names)}
    known = {}
    for path, option in numbers(parser()):
        assert known.setdefault(option.flag, limits(option)) == limits(option), (path, option.flag)
    assert shown == known
    assert f"more than {LONGEST:,} characters" in section


@pytest.mark.parametrize("side", ["smallest", "largest"])
def test_a_number_beyond_its_limit_is_refused(side, capsys):
    tried = 0
    for path, option in numbers(parser()):
        if len(path) > 1 or path[0] in ("reproduce", "selftest"):  # whose further arguments are no path
            continue
        least = option.above if option.least is None else option.least - 1
        most = LARGEST if option.most is None and option.kind is int else option.most
        beyond = least if side == "smallest" else most and most + 1
        if beyond is None:
            continue
        files = [] if path[0] == "optimizers" else ["mlp", *["new.onnx"] * (path[0] == "convert")]
        assert main([*path, *files, option.flag, f"{beyond}"]) == 2
        done = capsys.readouterr()
        assert done.out == ""
        assert option.flag in done.err, (path, option.flag, done.err)
        assert ("must be at least" in done.err or "must be above" in done.err) == (side == "smallest"), done.err
        tried += 1
    assert tried > 20
