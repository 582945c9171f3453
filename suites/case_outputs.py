"""Cases: every option that names an output with every file that the command reads, by each name that a file can have.

The options are those that the commands declare, and what a command reads is what it was seen to read.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from cases import HERE, Case, Ended
from scenes import OUT, Scene

from xverify.commands._main import parser
from xverify.commands._outputs import SUMMARY

SUFFIXES = {"html": ".html", "markdown": ".md", "junit": ".xml", "csv": ".csv", "json": ".json", "curve": ".png"}
WRITTEN = ("written", "new folder")
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
        flags = options(scene.words)
        places = [(flag, SUFFIXES.get(name, "")) for flag, name in flags.items() if flag not in scene.words]
        places += [(OUT, word.removeprefix(OUT)) for word in scene.words if word.startswith(OUT)]
        if scene.command in SUMMARIZED:
            places.append((SUMMARY, ".md"))
        forced = any("--force" in each.option_strings for each in declared(scene.words))
        for flag, suffix in places:
            # The index of a history is read and written, and may be named.
            for read in (each for each in scene.reads if flag != "--index" or each.suffix != ".duckdb"):
                for kind, (name, prepare) in spellings(read, suffix).items():
                    for force in ((), ("--force",)) if forced else ((),):
                        words, variables = _words(scene, flag, name)
                        shown = " ".join((scene.name, flag, str(read), *force))
                        yield Case(
                            f"outputs: {kind}", shown, folder, (*words, *force), prepare, (2,),
                            judge=partial(_named, flag=flag), variables={**scene.variables, **variables},
                        )  # fmt: skip


def _words(scene: Scene, flag: str, name: str) -> tuple[tuple[str, ...], dict[str, str]]:
    """The arguments, and the variables, by which a command gets this output."""
    if flag == OUT:
        return scene.with_out(name), {}
    if flag == SUMMARY:
        return scene.with_out(), {SUMMARY: name}
    return (*scene.with_out(), flag, name), {}


def _named(ended: Ended, here: Path, flag: str) -> str:
    """What is wrong with the message: it has to name the output."""
    names = (OUT, "TARGET", "source and target", "--receipt") if flag == OUT else (flag,)
    return "" if any(name in ended.err for name in names) else f"it does not name {flag}: {ended.err!r}"
