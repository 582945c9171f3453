"""Cases: every text of a result, and the names of folders, files, weights and tensors, with hostile texts, in every format.

No line of an output is one of theirs, no markup of theirs is obeyed, no link is made, and nothing is run.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
from cases import Case, Ended
from helpers.foreigntext import samples
from helpers.outputplaces import onnx_file
from scenes import FAST, RUN, Scene

from xverify.commands._outputs import SUMMARY
from xverify.weights import save_file

TEXTS = {
    "a line": "x\nPASS everything",
    "a verdict": "PASS everything",
    "a command": "x\n::error::stop ##[error]stop ##vso[task.setvariable]",
    "markup": "x [bold red]y[/] [link=file:///etc]z[/link] [/]",
    "an address": "see http://evil.example www.evil.example @someone #12 a@evil.example",
    "escapes": "x\x1b[2J\x1b]0;title\x07\x9b31m\r\x08",
    "HTML": "</td></script><script>zap()</script><img src=x onerror=zap()> <!-- [a](http://evil.example) ![b](c)",
    "bidi": "x\u202egnp.exe\u2066\u200f\u200b\ufeff",
    "a formula": '=HYPERLINK("x")',
}
# A line that a reader takes for a verdict, or a CI service for a command.
OBEYED = re.compile(r"\s*PASS everything|\s*::|.*##\w*\[")
PAGE, REPORT, CASES, TABLE, ADDED = "new.html", "new.md", "new.xml", "new.csv", "new-summary.md"
MARK = "the place of the text"
Checked = Callable[[Ended, Path], str]


class _Page(HTMLParser):
    """Notes what a page would run, load or lead to."""

    def __init__(self) -> None:
        super().__init__()
        self.wrong = ""

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        for name, value in attributes:
            if name.startswith("on") or (name in ("href", "src") and not str(value).startswith(("#", "data:image/"))):
                self.wrong = self.wrong or f"it has <{tag} {name}={value!r}>"
        if tag in ("img", "a") and not attributes:
            self.wrong = self.wrong or f"it has <{tag}>"

    def handle_data(self, data: str) -> None:
        if self.cdata_elem == "script" and "zap()" in data:
            self.wrong = self.wrong or "it runs a script of the text"


def lines(text: str) -> str:
    """What is wrong with the lines of an output."""
    wrong = next((line for line in text.splitlines() if OBEYED.match(line)), "")
    return f"a line is theirs: {wrong!r}" if wrong else ""


def terminal(ended: Ended, here: Path) -> str:
    """What is wrong with what a terminal shows."""
    both = ended.out + ended.err
    seen = re.search(r"x \\?\[bold red\\?\]|x y z|\[bold red\]", both) if "y" in both else None
    return lines(both) or ("markup is obeyed" if seen and seen[0] == "x y z" else "")


def page(ended: Ended, here: Path) -> str:
    """What is wrong with a page."""
    found = _Page()
    found.feed((here / PAGE).read_text(encoding="utf-8"))
    return found.wrong or terminal(ended, here)


def _rendered(text: str) -> str:
    import cmarkgfm
    from cmarkgfm.cmark import Options

    html = cmarkgfm.github_flavored_markdown_to_html(text, Options.CMARK_OPT_UNSAFE)
    found = _Page()
    found.feed(html)
    wrong = next((tag for tag in ("<a ", "<img", "<script") if tag in html), "")
    return found.wrong or (f"Markdown makes {wrong}" if wrong else lines(text))


def markdown(ended: Ended, here: Path) -> str:
    """What is wrong with a report in Markdown on standard output."""
    return _rendered(ended.out) or lines(ended.err)


def summary(ended: Ended, here: Path) -> str:
    """What is wrong with the summary of a workflow on GitHub."""
    return _rendered((here / ADDED).read_text(encoding="utf-8")) or terminal(ended, here)


def junit(ended: Ended, here: Path) -> str:
    """What is wrong with a report for a CI server."""
    text = (here / CASES).read_text(encoding="utf-8")
    ElementTree.fromstring(text)
    return lines(text) or terminal(ended, here)


def table(ended: Ended, here: Path) -> str:
    """What is wrong with a table: a cell that a program takes for a formula."""
    cells = [cell for row in csv.reader(ended.out.splitlines()) for cell in row]
    formula = next((cell for cell in cells if cell.startswith(("=", "+", "@", "\t"))), "")
    return f"a cell is a formula: {formula!r}" if formula else lines(ended.err)


# A format -> commands that write a result in it, what is wrong with it, and the environment.
FORMATS: dict[str, tuple[tuple[tuple[str, ...], ...], Checked, dict[str, str]]] = {
    "terminal": (
        (("report", "bad.json"), ("report", "bad.json", "--details"), ("explain", "bad.json"),
         ("diff", "r.json", "bad.json", "--anyway"), ("history", "--results", "damaged", "--index", "new.duckdb", "--all")),
        terminal, {},
    ),
    "HTML": ((("report", "bad.json", "--html", PAGE), ("report", "bad.json", "r.json", "--html", PAGE)), page, {}),
    "Markdown": (
        (("report", "bad.json", "--format", "markdown"), ("diff", "r.json", "bad.json", "--anyway", "--format", "markdown")),
        markdown, {},
    ),
    "JUnit": ((("report", "bad.json", "--junit", CASES), ("diff", "r.json", "bad.json", "--anyway", "--junit", CASES)), junit, {}),
    "CSV": ((("report", "bad.json", "--format", "csv"), ("diff", "r.json", "bad.json", "--anyway", "--format", "csv")), table, {}),
    "GitHub summary": ((("diff", "r.json", "bad.json", "--anyway"),), summary, {SUMMARY: ADDED}),
}  # fmt: skip


def generate(scenes: list[Scene], folder: Path) -> Iterator[Case]:
    """All cases. folder: of the scenes, which tell nothing here."""
    made = [json.dumps(values) for values in samples(MARK)]
    for kind, text in TEXTS.items():
        for index, values in enumerate(each.replace(json.dumps(MARK), json.dumps(text)) for each in made):
            for format, (commands, checked, variables) in FORMATS.items():
                words = commands[index % len(commands)]
                yield Case(
                    f"texts: {format}", f"{kind}, text {index} of a result: {' '.join(words)}", folder, words,
                    partial(_written, values=values), (0, 1, 4), makes=("new*",), judge=checked, variables=variables,
                )  # fmt: skip
        yield from _names(kind, text, folder)


def _written(here: Path, values: str) -> None:
    (here / "damaged").mkdir()
    for path in (here / "bad.json", here / "damaged" / "bad.json"):
        path.write_text(values)


def _names(kind: str, text: str, folder: Path) -> Iterator[Case]:
    """The name of a model folder, of a file, of a weight, of a tensor of a model, and the text of an error of a model."""
    file = text.replace("/", "|").replace("\0", "")
    outputs = {
        "terminal": (),
        "HTML": ("--html", PAGE),
        "Markdown": ("--format", "markdown"),
        "JUnit": ("--junit", CASES),
    }
    for format, more in outputs.items():
        checked = FORMATS[format][1]
        for words, prepare in (
            (("run", f"./{file}", *RUN[:-1]), partial(_folder, file=file)),
            (("run", "port", "--subjects", "numpy", "--no-timing", "--cases", "1"), partial(_error, text=text)),
            (("report", f"{file}.json"), partial(_result, file=file)),
            (
                ("sweep", f"./{file}", "--results", "new", *FAST[:-1], "--subjects", "numpy"),
                partial(_folder, file=file),
            ),
        ):
            yield Case(
                f"texts: {format}", f"{kind}, name: {' '.join(words)}", folder, (*words, *more), prepare,
                makes=("new*",), judge=partial(_unless_refused, checked=checked),
            )  # fmt: skip
    for words, prepare in (
        *((("weights", action, "a.npz", *rest), partial(_weight, text=text)) for action, rest in ACTIONS.items()),
        *(((*command, f"{file}.{suffix}"), None) for command in NAMED for suffix in ("toml", "json", "onnx")),
        (("check", "bad.onnx", "--inputs", "a.npz", "--quiet"), partial(_tensor, text=text)),
    ):
        yield Case(
            "texts: terminal", f"{kind}, name: {' '.join(words)}", folder, words, prepare, makes=("new*",), judge=terminal,
        )  # fmt: skip


ACTIONS = {"digest": (), "diff": ("b.npz",), "convert": ("new.safetensors",)}
NAMED = (
    ("report",),
    ("explain",),
    ("sweep",),
    ("check",),
    ("run",),
    ("replay",),
    ("history", "--results"),
    ("weights", "digest"),
)


def _unless_refused(ended: Ended, here: Path, checked: Checked) -> str:
    """What is wrong with a format, where the name was not refused."""
    return terminal(ended, here) if ended.code in (2, 3) else checked(ended, here)


def _folder(here: Path, file: str) -> None:
    (here / "port").rename(here / file)


def _result(here: Path, file: str) -> None:
    (here / "r.json").rename(here / f"{file}.json")


def _error(here: Path, text: str) -> None:
    path = here / "port" / "numpy.py"
    path.write_text(path.read_text() + f"\ndef build():\n    raise ValueError({text!r})\n")


def _weight(here: Path, text: str) -> None:
    for name, value in (("a", 0), ("b", 1)):
        save_file({f"{text}.weight": np.full((2, 2), value, np.float32)}, here / f"{name}.npz")


def _tensor(here: Path, text: str) -> None:
    onnx_file(here / "bad.onnx")
    _weight(here, text)
