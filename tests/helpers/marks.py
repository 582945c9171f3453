"""Marks of the values of a parameter, what is wrong with the marks of a test, and which files have tests with some marks."""

import re
from collections.abc import Iterable
from itertools import compress, product

import pytest
from _pytest.mark.expression import Expression

from xverify import host

MARKS = ("slow", "long", "timed")
# Of tests that compute int8 products of right files: without VNNI, the kernels themselves are wrong.
needs_vnni = pytest.mark.skipif(
    host.saturates_int8(), reason="int8 kernels of this processor saturate sums of two products (no VNNI)"
)


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


def may_match(expression: str, text: str) -> bool:
    """Whether a test in a file may have marks that fit an expression. text: that of the file.

    It saves the import of files, some of which import frameworks. A mark that the text does not have is none of its tests; one of
    ``pytestmark`` is of all of them.
    """
    if not set(re.findall(r"\w+", expression)) <= {*MARKS, "and", "or", "not"}:
        return True
    whole = re.search(r"^pytestmark = (?:\[.*?^\]|.*?$)", text, re.MULTILINE | re.DOTALL)
    always = {mark for mark in MARKS if whole and f"mark.{mark}" in whole[0]}
    possible = [mark for mark in MARKS if f"mark.{mark}" in text or f"with_{mark}" in text]
    asked = Expression.compile(expression)
    subsets = (set(compress(possible, chosen)) | always for chosen in product((False, True), repeat=len(possible)))
    return any(asked.evaluate(lambda name, marks=marks: name in marks) for marks in subsets)
