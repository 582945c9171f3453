"""Programs that run with PaddlePaddle, and the reason why tests that need it are skipped."""

import subprocess

import pytest

from xverify import host
from xverify.environments import store as environments
from xverify.framework.discovery import load
from xverify.processes.command import interpreter as interpreter_of
from xverify.processes.command import worker_command

PADDLE = load("paddle")
NEEDS_PADDLE = pytest.mark.skipif(
    bool(host.missing(PADDLE)) and environments.chosen(PADDLE) is None,
    reason="PaddlePaddle is not installed: xverify env create paddle",
)


def inside(folder, code):
    """What a program prints that runs with PaddlePaddle and xverify."""
    command = worker_command(PADDLE, folder, 1, "cpu", interpreter_of(PADDLE), module="this", arguments=())
    done = subprocess.run(
        [command.arguments[0], "-c", code],
        capture_output=True,
        text=True,
        env=command.environment,
        check=False,
        cwd=folder,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout
