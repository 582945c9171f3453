"""What a file, its user and its framework say about an optimizer. No framework is started."""

from pathlib import Path

import pytest

from xverify.errors import UsageError
from xverify.messages.checkpoint import CheckpointOpened
from xverify.training.checkpoint_settings import complete, other_settings
from xverify.workload.optimizers import optimizer

FILE = Path("state.msgpack")
ADAM = {"name": "adam", "lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8}


def test_what_neither_says_is_the_default_of_the_framework():
    opened = CheckpointOpened({"amsgrad": False}, steps=7, defaults={"beta1": 0.9, "eps": 1e-7})
    found, assumed, steps = complete(FILE, {"name": "adam", "lr": 0.01, "beta1": 0.8}, opened)
    assert (found.lr, found.beta1, found.eps, steps) == (0.01, 0.8, 1e-7, 7)
    assert assumed == {"eps": 1e-7}


@pytest.mark.parametrize(
    ("given", "opened", "says"),
    [
        ({}, CheckpointOpened({"lr": 1e-3}, steps=7), "give --optimizer NAME"),
        ({"name": "adamw"}, CheckpointOpened(ADAM, steps=7), "holds the state of adam"),
        ({"name": "sgd"}, CheckpointOpened({}, steps=7), "give it with --set lr=X"),
        ({"lr": 0.5}, CheckpointOpened(ADAM, steps=7), "says 0.001"),
        ({"step": 8.0}, CheckpointOpened(ADAM, steps=7), "says 7"),
        ({"step": 1.5}, CheckpointOpened(ADAM), "whole number above 0"),
        ({}, CheckpointOpened(ADAM), "give --set step=N"),
        ({"beta3": 0.5}, CheckpointOpened(ADAM, steps=7), "no such setting"),
        ({"recipe": 0.5}, CheckpointOpened(ADAM, steps=7), "no such setting"),
        ({"lr": float("nan")}, CheckpointOpened({"name": "sgd"}, steps=7), "finite"),
    ],
)
def test_a_setting_that_cannot_be_is_refused(given, opened, says):
    with pytest.raises(UsageError, match=says):
        complete(FILE, given, opened)


def test_a_file_with_another_rate_is_told():
    opened = CheckpointOpened({"name": "adam", "lr": 0.5, "eps": 1e-8})
    assert other_settings(FILE, opened, optimizer("adam")) == ["lr is 0.5 in state.msgpack, and should be 0.001"]
    with pytest.raises(UsageError, match="the state of adam, and that of sgd"):
        other_settings(FILE, opened, optimizer("sgd"))
