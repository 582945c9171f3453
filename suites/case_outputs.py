"""Cases: every option that names an output with every file that the command reads, by each name that a file can have.

The options are those that the commands declare, and what a command reads is what it was seen to read.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import combinations
from pathlib import Path

from cases import HERE, Case, Ended
from scenes import OUT, Scene

from xverify.commands._main import parser
from xverify.commands._outputs import SUMMARY

SUFFIXES = {"html": ".html", "markdown": ".md", "junit": ".xml", "csv": ".csv", "json": ".json", "curve": ".png"}
WRITTEN = ("written", "new folder")
NAMES = {OUT: (OUT, "TARGET", "source and target", "--receipt")}  # how messages call an output, where it is no option
SUMMARIZED = ("run", "check", "diff", "history", "sweep")  # commands whose report goes into the summary of a workflow


def declared(words: tuple[str, ...]) -> list[argparse.Action]:
    """The arguments of a command, or of its action, of which the words are the first."""
    of = parser(load=words[:1])
    found: list[argparse.Action] = []
    for word in words[:2]:
        below = next((each.choices for each in of._actions if isinstance(each, argparse._SubParsersAction)), {})
        if word in below:
            of = below[word]
            found = of._actions
    return found


def options(words: tuple[str, ...]) -> dict[str, str]:
    """The options of a command that name an output: flag -> name."""
    made = [vars(each)["option"] for each in declared(words) if "option" in vars(each)]
    return {option.flag: option.name for option in made if option.path in WRITTEN}


def spellings(read: Path, suffix: str) -> dict[str, tuple[str, Callable[[Path], object] | None]]:
    """Names of a file that is read: kind -> (its name as an output, what makes this name). suffix: of a link's name."""
    link, beside = f"link{suffix}", f"folder/{read.name}"

    def linked(here: Path, make: Callable[[Path, Path], object]) -> None:
        make(here / read, here / link)

    def in_folder(here: Path) -> None:
        (here / "folder").symlink_to((here / read).parent)

    def twice(here: Path) -> None:
        (here / "first").symlink_to(here / read)
        (here / link).symlink_to("first")

    return {
        "as it is": (str(read), None),
        "absolute": (f"{HERE}/{read}", None),
        "another spelling": (f"port/.././{read.parent}//{read.name}", None),
        "a link": (link, partial(linked, make=lambda file, name: name.symlink_to(file))),
        "a link to a link": (link, twice),
        "a hard link": (link, partial(linked, make=os.link)),
        "a link to its folder": (beside, in_folder),
    }


def generate(scenes: list[Scene], folder: Path) -> Iterator[Case]:
    """All cases. folder: of the scenes."""
    for scene in scenes:
        outputs = _outputs(scene)
        forced = any("--force" in each.option_strings for each in declared(scene.words))
        for flag, suffix in outputs:
            # The index of a history is read and written, and may be named.
            for read in (each for each in scene.reads if flag != "--index" or each.suffix != ".duckdb"):
                for kind, (name, prepare) in spellings(read, suffix).items():
                    for force in ((), ("--force",)) if forced else ((),):
                        shown = " ".join((scene.name, flag, str(read), *force))
                        yield _case(scene, {flag: name}, kind, shown, folder, prepare, force)
            yield from _of_the_user(scene, flag, suffix, folder)
        for (flag, suffix), (other, needed) in combinations(outputs, 2):
            yield from _in_one_place(scene, flag, other, needed if needed == ".png" else suffix, folder)


def _outputs(scene: Scene) -> list[tuple[str, str]]:
    """(the option, OUT or the variable by which a command gets an output, the suffix of its name) for each output."""
    flags = options(scene.words)
    found = [(flag, SUFFIXES.get(name, "")) for flag, name in flags.items() if flag not in scene.words]
    found = [(OUT, word.removeprefix(OUT)) for word in scene.words if word.startswith(OUT)] + found
    return found + ([(SUMMARY, ".md")] if scene.command in SUMMARIZED else [])


def _of_the_user(scene: Scene, flag: str, suffix: str, folder: Path) -> Iterator[Case]:
    """A file that is not read, and that xverify did not write, as an output without --force."""
    if flag == SUMMARY:  # which is added to
        return
    file = Path("notes", f"mine{suffix}")
    for kind, (name, prepare) in spellings(file, suffix).items():
        made = partial(_prepared, file=file, prepare=prepare)
        yield _case(scene, {flag: name}, f"of the user, {kind}", f"{scene.name} {flag}", folder, made)


def _in_one_place(scene: Scene, flag: str, other: str, suffix: str, folder: Path) -> Iterator[Case]:
    """Two outputs of one command under one name, and where one of them is a link to the other."""
    if other == SUMMARY and flag == "--markdown":  # in its place
        return
    new, link = f"new{suffix}", f"link{suffix}"
    for kind, name, prepare in (
        ("one name", new, None),
        ("one name, absolute", f"{HERE}/{new}", None),
        ("a link to the other", link, lambda here: (here / link).symlink_to(new)),
    ):
        shown = f"{scene.name} {flag} {other}"
        yield _case(scene, {flag: new, other: name}, f"two outputs, {kind}", shown, folder, prepare)


def _case(
    scene: Scene, places: dict[str, str], kind: str, name: str, folder: Path, prepare: Callable[[Path], object] | None,
    more: tuple[str, ...] = (),
) -> Case:  # fmt: skip
    """A command with these outputs, which is refused. places: option, OUT or variable -> a path."""
    words = (*scene.with_out(places.get(OUT, "")), *more)
    for flag in places.keys() - {OUT, SUMMARY}:
        words = (*words, flag, places[flag])
    variables = {**scene.variables, SUMMARY: places[SUMMARY]} if SUMMARY in places else scene.variables
    return Case(
        f"outputs: {kind}", name, folder, words, prepare, (2,), judge=partial(_named, places=places), variables=variables,
    )  # fmt: skip


def _prepared(here: Path, file: Path, prepare: Callable[[Path], object] | None) -> None:
    (here / file).parent.mkdir()
    (here / file).write_text("mine")
    if prepare is not None:
        prepare(here)


def _named(ended: Ended, here: Path, places: Mapping[str, str]) -> str:
    """What is wrong with the message: it has to name an output by its option or by its file."""
    names = [name for flag, path in places.items() for name in (*NAMES.get(flag, (flag,)), Path(path).name)]
    return "" if any(name in ended.err for name in names) else f"it does not name {names[0]}: {ended.err!r}"
