"""The marks of the tests: which of them fit together, and which values of a parameter get one."""

import os

import pytest
from helpers.commandline import forked
from helpers.marks import with_long, wrong_marks


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
