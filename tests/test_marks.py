"""The marks of the tests: which of them fit together, and which values of a parameter get one."""

import os

import pytest
from helpers.commandline import forked
from helpers.marks import may_match, with_long, wrong_marks


@pytest.mark.parametrize("marks", [set(), {"timed"}, {"slow"}, {"slow", "long"}, {"slow", "long", "timed"}])
def test_marks_that_fit_together(marks):
    assert wrong_marks(marks) == ""


@pytest.mark.parametrize("marks", [{"long"}, {"long", "timed"}])
def test_a_long_test_that_is_not_slow_is_refused(marks):
    assert "long and not slow" in wrong_marks(marks)


def test_the_long_values_of_a_parameter_are_marked():
    first, second = with_long(["mlp", "vgg16"], "vgg16")
    assert first == "mlp"
    assert (second.values, [mark.name for mark in second.marks]) == (("vgg16",), ["long"])
    with pytest.raises(AssertionError, match="vgg61"):
        with_long(["mlp", "vgg16"], "vgg61")


PLAIN, SOME, ALL = "def test_it(): ...", "@pytest.mark.slow\ndef test_it(): ...", "pytestmark = pytest.mark.slow\n"


@pytest.mark.parametrize(
    ("expression", "text", "expected"),
    [
        ("slow and not long", PLAIN, False),
        ("slow and not long", SOME, True),
        ("slow and not long", ALL, True),
        ("not slow and not timed", PLAIN, True),
        ("not slow and not timed", SOME, True),
        ("not slow and not timed", ALL, False),
        ("not slow", "pytestmark = [\n    pytest.mark.slow,\n]\n", False),
        ("not slow", 'pytestmark = pytest.mark.usefixtures("slowed")\n', True),
        ("timed and not slow", SOME, False),
        ("timed or long", SOME + "\nwith_long()", True),
        ("parametrize", PLAIN, True),
    ],
)
def test_files_without_a_fitting_mark_are_not_imported(expression, text, expected):
    assert may_match(expression, text) is expected


FAILS = """
import pytest

runs = []

{mark}
def test_it(tmp_path):
    runs.append(tmp_path)
    assert len(set(runs)) > {failures}
"""


@pytest.mark.parametrize(
    ("mark", "failures", "code"),
    [("@pytest.mark.timed", 0, 0), ("@pytest.mark.timed", 1, 0), ("@pytest.mark.timed", 2, 1), ("", 1, 1)],
)
def test_a_timed_test_that_fails_runs_once_more(tmp_path, mark, failures, code):
    (tmp_path / "test_it.py").write_text(FAILS.format(mark=mark, failures=failures))
    arguments = ["-q", "-p", "helpers.twice", "-p", "no:cacheprovider", "-p", "no:xdist", "test_it.py"]
    ended, out = forked(lambda: pytest.main(arguments), tmp_path, dict(os.environ), [])
    assert ended == code, out
    assert ("1 failed" if code else "1 passed") in out
