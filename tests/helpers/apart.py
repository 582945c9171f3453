"""Programs that run with a framework of an environment of its own, and the reason why tests that need it are skipped."""

import subprocess

import pytest

from xverify import host
from xverify.environments import store as environments
from xverify.framework.discovery import load
from xverify.processes.command import interpreter as interpreter_of
from xverify.processes.command import worker_command


def needs(name, called=""):
    """A mark that skips tests without this framework. called: its name in the reason, where it is another one."""
    adapter = load(name)
    return pytest.mark.skipif(
        bool(host.missing(adapter)) and environments.chosen(adapter) is None,
        reason=f"{called or name} is not installed: xverify env create {name}",
    )


def inside(name, folder, code):
    """What a program prints that runs with this framework and xverify."""
    adapter = load(name)
    command = worker_command(adapter, folder, 1, "cpu", interpreter_of(adapter), module="this", arguments=())
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
