"""The marks of the tests: which of them fit together, and which values of a parameter get one."""

import pytest
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
