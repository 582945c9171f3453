"""Results as one HTML page that needs no network and no script."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..results.records import Result, Row
from ..results.verdicts import Outcome, SpeedVerdict, Verdict
from . import charts, conditions, content, decoding, headlines, limits, numbers, plan, quantisation, terms, training
from .axes import WIDTH
from .style import has_warnings
from .text import one_line, pieces

if TYPE_CHECKING:
    from jinja2 import Template

TEMPLATES = Path(__file__).parent / "templates"
LONGEST_NAME = 120  # characters
DRAWING = re.compile(r"[MLHVZhlmv0-9. -]*")  # what the path of a drawing consists of
BREAKS = re.compile(r"[-|]\S|\S{24}")  # a word that a browser breaks at a hyphen or a bar, and one that is long
AFTER = re.compile(r"(?<=[/,])(?=[^/,])")
# A verdict or status -> its colour; all others are bad.
TONES: dict[str, str] = {
    **dict.fromkeys((Outcome.PASS, Verdict.IDENTICAL, Verdict.EQUAL, SpeedVerdict.FASTER), "good"),
    **dict.fromkeys((Outcome.INCONCLUSIVE, Verdict.DRIFT, Verdict.UNTESTED, "no verdict", "-"), "warn"),
}


def page(results: Sequence[Result]) -> str:
    """The page of one or several results. The template asks the modules of the report for all that it shows."""
    results = headlines.in_order(results)
    return template("page.html").render(
        results=results,
        subjects=tuple(dict.fromkeys(row.subject for result in results for row in result.rows)),
        charts=charts,
        conditions=conditions,
        content=content,
        decoding=decoding,
        headlines=headlines,
        limits=limits,
        plans=plan,
        quantisation=quantisation,
        terms=terms,
        training=training,
    )


def framed(results: Sequence[Result]) -> str:
    """The page in a frame, for a notebook."""
    return f'<iframe title="xverify" width="100%" height="700" sandbox srcdoc="{escape(page(results))}"></iframe>'


@cache
def template(name: str) -> Template:
    """A template of a page, which escapes every text that it prints."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    made = Environment(
        loader=FileSystemLoader(TEMPLATES), autoescape=True, undefined=StrictUndefined, finalize=_shown,
        trim_blocks=True, lstrip_blocks=True,
    )  # fmt: skip
    made.filters.update(tone=tone, edge=_edge, drawing=_drawing, name=_name, pieces=pieces, one_line=one_line)
    made.filters.update(percent=_percent, anchor=_anchor, whole=_whole, meaning=terms.meaning)
    made.globals.update(numbers=numbers)
    return made.get_template(name)


def _shown(value: Any) -> Any:  # Any: whatever a template prints
    """Every text that a template prints: in one line, without control characters. The template then escapes it."""
    if isinstance(value, float):
        return f"{value:.1f}"
    return one_line(value) if isinstance(value, str) and not hasattr(value, "__html__") else value


def _name(text: str) -> str:
    """The name of a model, a subject or a layer."""
    return one_line(text, LONGEST_NAME).strip() or "(no name)"


def tone(verdict: str) -> str:
    """The colour of a verdict, which may hold a precision, EQUAL at float16, or warnings, PASS, 1 warning."""
    return "warn" if has_warnings(verdict) else TONES.get(verdict.partition(" at ")[0], "bad")


def _edge(row: Row) -> str:
    """The class of the line of a row."""
    return f"{tone(Outcome.FAIL if row.misses_gate else Verdict.EQUAL if row.accepted else content.verdict(row))}-edge"


def _whole(text: str) -> object:
    """A text whose words are broken at no hyphen and no bar; a long one is broken after a comma or a slash."""
    from markupsafe import Markup

    words = (str(escape(word)) for word in one_line(text).split(" "))
    return Markup(" ".join(_unbroken(word) if BREAKS.search(word) else word for word in words))


def _unbroken(word: str) -> str:
    """A word with its parts, between which a line may end."""
    return "<wbr>".join(f'<span class="whole">{part}</span>' for part in AFTER.split(word))


def _percent(place: float) -> str:
    """A place or a length in a drawing."""
    return f"{100 * place / WIDTH:.2f}%"


def _anchor(place: float) -> str:
    """The side of a label at which its place is, so that none leaves the drawing."""
    return "start" if place < 0.03 * WIDTH else "end" if place > 0.97 * WIDTH else "middle"


def _drawing(path: str) -> object:
    """The path of a drawing, which may be long."""
    from markupsafe import Markup

    if not DRAWING.fullmatch(path):
        raise ValueError(f"no path of a drawing: {path[:80]!r}")
    return Markup(path)
