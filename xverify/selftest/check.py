"""The record of one check of the selftest."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

# Reports progress to the user, one line per call.
Say = Callable[[str], None]


@dataclass(frozen=True)
class Check:
    """The result of one check.

    name: what is checked. found: what was measured. accepted: which results pass.
    passed: None when the check is undecided, because noise of the machine allowed no measurement or something is not installed.
    """

    name: str
    found: str
    accepted: str
    passed: bool | None
