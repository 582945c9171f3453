"""The colours of verdicts, and of the reasons for them, in a terminal."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..results.verdicts import Outcome, Verdict
from .text import escape

BROKEN = "bold red"  # also the style of a verdict that STYLES does not contain

STYLES: dict[str, str] = {
    Outcome.PASS: "bold green",
    Outcome.FAIL: "bold red",
    Outcome.ERROR: "bold red",
    Outcome.INCONCLUSIVE: "bold yellow",
    Verdict.IDENTICAL: "green",
    Verdict.EQUAL: "green",
    Verdict.DRIFT: "yellow",
    Verdict.UNTESTED: "yellow",
    Verdict.DIFFERENT: "bold red",
    Verdict.INVALID: "bold red",
    # Verdicts on speed.
    "FASTER": "green",
    "SLOWER": "red",
    "REFUSED": "red",
    "AMBIGUOUS": "yellow",
}


class Reason(NamedTuple):
    """Why a row is not EQUAL, or why its speed has no verdict. subject: the name of the row."""

    style: str
    subject: str
    text: str


def coloured(verdict: str) -> str:
    """A verdict, or a status such as "crashed", in rich's markup."""
    known = "bold yellow" if has_warnings(verdict) else STYLES.get(verdict)
    return f"[{known}]{verdict}[/]" if known else f"[red]{escape(verdict)}[/]"


def has_warnings(verdict: str) -> bool:
    """Whether it is the verdict of a run that passes with warnings, such as ``PASS, 1 warning``."""
    return re.fullmatch(rf"{Outcome.PASS}, \d+ warnings?", verdict) is not None
