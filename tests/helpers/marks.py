"""Marks of the values of a parameter, and what is wrong with the marks of a test."""

from collections.abc import Iterable

import pytest


def with_long(values: Iterable[str], *long: str) -> list:
    """The values of a parameter, of which some make a test long. long: these values."""
    values = list(values)
    assert set(long) <= set(values), f"{set(long) - set(values)} is none of the values"
    return [pytest.param(value, marks=pytest.mark.long) if value in long else value for value in values]


def wrong_marks(marks: set[str]) -> str:
    """Why a test cannot have all of these marks together; "" when it can."""
    if "long" in marks and "slow" not in marks:
        return "it is long and not slow, so that the fast tests would run it, too"
    return ""
