"""What `make docs` adds to the pages of docs/, as a hook of mkdocs.

README.md, CONTRIBUTING.md and CHANGELOG.md become pages, and links to them lead there. The reference of the commands is made
from the parser, which is made from the declarations of the options; that of the Python interface is made from the code. Nothing of
this is kept in the repository.
"""

from __future__ import annotations

import argparse
import inspect
import re
import sys
from collections.abc import Callable, Iterator
from html import escape
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

import xverify
from xverify.commands._arguments import Parser
from xverify.commands._main import GROUPS, commands, parser

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".ci"))

from site_docstrings import listed  # noqa: E402

OUTSIDE = {"README.md": "overview.md", "CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
# Pages that define words: a search for one of them shows these first.
DEFINING = {"noise-floor.md": 6.0, "glossary.md": 20.0}
PYTHON = """# Python

The functions take the options of [the command line](command-line.md), with `_` for `-`.

%s
## Describing a model

::: xverify.workload.spec.ModelSpec
::: xverify.workload.spec.TensorSpec
::: xverify.workload.losses.Loss
::: xverify.workload.recipe.Recipe
::: xverify.workload.recipe.Group
::: xverify.workload.schedule.Schedule

## Results

::: xverify.results.records.Result
::: xverify.results.records.Row
::: xverify.errors.XverifyError

## Adapters and progress

::: xverify.framework.adapter.Framework
::: xverify.framework.training.Training
::: xverify.framework.modelfile.ModelFile
::: xverify.framework.converter.Converter
::: xverify.progress.Listener
"""


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are not in docs/. mkdocs calls this."""
    pages = {place: _from_the_top((ROOT / name).read_text(encoding="utf-8")) for name, place in OUTSIDE.items()}
    for place, text in {**pages, "commands.md": command_reference(), "python.md": python_reference()}.items():
        files.append(File.generated(config, place, content=text))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Make a page of docs/, as GitHub shows it, one that mkdocs shows. mkdocs calls this."""
    if page.file.src_uri in DEFINING:
        page.meta["search"] = {"boost": DEFINING[page.file.src_uri]}
    for name, place in OUTSIDE.items():
        markdown = markdown.replace(f"](../{name}", f"]({place}")
    markdown = markdown.replace("<details>", '<details markdown="1">')
    return re.sub(r"^(<!--.*-->)\n(?=\|)", r"\1\n\n", markdown, flags=re.MULTILINE)


def _from_the_top(text: str) -> str:
    """A page of the top folder with the links that it has in the site."""
    for name, place in OUTSIDE.items():
        text = text.replace(f"]({name}", f"]({place}")
    text = text.replace("](docs/README.md", "](README.md").replace("](docs/", "](")
    return re.sub(r"\[([^\]]+)\]\((?:LICENSE|models|weights|tests)[^)]*\)", r"\1", text)


def python_reference() -> str:
    """The page about the Python interface. The arguments of the functions are those that their options declare."""
    functions = (xverify.run, xverify.check, xverify.convert)
    return PYTHON % "\n\n".join(_function(each) for each in functions)


def _function(of: Callable[..., Any]) -> str:
    """The heading, signature and docstring of a function."""
    found = inspect.signature(of)
    arguments = ",\n    ".join(_argument(each) for each in found.parameters.values())
    name = f"xverify.{of.__name__}"
    return f"## {name}\n\n```python\n{name}(\n    {arguments},\n)\n```\n\n{listed(inspect.getdoc(of) or '')}"


def _argument(of: inspect.Parameter) -> str:
    """A parameter without its type, which its description makes clear."""
    return of.name if of.default is of.empty else f"{of.name}={of.default!r}"


def command_reference() -> str:
    """One page with the help of every command."""
    top = parser()
    parts = ["# Every command", "This page is made from the declarations of the options, as `--help` is."]
    [subparsers] = [action for action in top._actions if isinstance(action, argparse._SubParsersAction)]
    known = commands()
    for group in GROUPS:
        for name, command in known.items():
            if command.group == group:
                parts += _command(subparsers.choices[name])
    return "\n\n".join(parts) + "\n"


def _command(of: Parser, level: int = 2) -> Iterator[str]:
    """The blocks about a command, or about an action of a command."""
    yield f"{'#' * level} {of.prog}"
    yield of.description or ""
    yield f"```\n{of._usage_line()}\n```"
    for group in of._action_groups:
        entries = [
            action
            for action in group._group_actions
            if not isinstance(action, (argparse._HelpAction, argparse._SubParsersAction))
        ]
        if entries:
            title = "" if group.title in (None, "options", "arguments") else f"**{group.title}**\n\n"
            rows = "\n".join(f"| {_name(action)} | {_cell(action.help or '')} |" for action in entries)
            yield f"{title}| argument | meaning |\n|---|---|\n{rows}"
    actions = list(of.actions())
    for _, _, action in actions:
        yield from _command(action, level + 1)
    if not actions and of.example:
        yield f"```\n{of.example}\n```"


def _name(action: argparse.Action) -> str:
    """An option with its value, or the name of an argument."""
    words = [", ".join(action.option_strings)] if action.option_strings else []
    if action.metavar and action.nargs != 0:
        words.append(str(action.metavar))
    return f"<code>{_cell(' '.join(words) or action.dest)}</code>"


def _cell(text: str) -> str:
    """A text of the help in a cell of a table."""
    text = escape(text.replace("%%", "%"), quote=False).replace("[", "&#91;")
    return re.sub(r"[|*_]", r"\\\g<0>", text)
