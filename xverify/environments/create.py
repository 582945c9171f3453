"""Makes and removes environments. When something fails, nothing remains that a run could use by mistake."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .. import reading, writing
from ..errors import UsageError, XverifyError
from ..host import kill_group
from ..interpreter import module, program
from ..progress import Listener
from . import interpreters, npm
from .store import STAMP, Environment, digest, find, interpreter, pins, root

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

INSPECT = """
import importlib.metadata, json, os, sys, sysconfig
config = os.path.join(sysconfig.get_config_var("BINDIR") or "", "python%d.%d-config" % sys.version_info[:2])
packages = {found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}
print(json.dumps({"python": sys.version.split()[0], "packages": packages, "config": config}))
"""
# Lines of an installer that do not say why it failed begin with these.
NOISE = (
    *("Looking in", "Collecting", "Using cached", "Downloading", "Requirement already", "WARNING:", "[notice]"),
    *("note:", "hint:", "[end of output]", "╰─> See above"),
)
MOST_REASONS = 8  # lines of an installer that an error message quotes

# Run a command to its end: (what it does, for the progress line; the command) -> the last line that it prints.
Step = Callable[[str, list[str]], str]


def create(name: str, listener: Listener) -> Environment:
    """Make an environment from its pins. An older one of this name is replaced; it stays when making the new one fails.

    name: a name in ``store.pins()``.
    listener: gets every step, and the last line that its command printed.
    Raises XverifyError with the last lines of the installer, or with the Python version that is missing.
    """
    file = pins()[name]
    return _make(name, file, file.name, listener)


def create_of(name: str, packages: Sequence[str], listener: Listener) -> Environment:
    """Make an environment of these packages, as ``create`` does. name: of the environment. packages: as pip takes them."""
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "packages.txt"
        file.write_text("\n".join(packages) + "\n", encoding="utf-8")
        others = dict.fromkeys(re.split(r"[\s=;<>!~]", each)[0] for each in packages[1:])
        return _make(name, file, ", ".join([*packages[:1], *others]), listener)


def _make(name: str, file: Path, packages: str, listener: Listener) -> Environment:
    """Make the environment of a file of pins. packages: what is installed, in words; otherwise see ``create``."""
    folder = root() / name

    def step(doing: str, command: list[str]) -> str:
        return _step(name, doing, command, file.parent, listener)

    locked = npm.folder_of(file)
    base = _base_interpreter(file, step)
    uv = shutil.which("uv")
    if uv is None:
        _check_ensurepip(base)
    with _reported(folder), _alone(folder), _in_place_of(folder):
        # isolated: the new interpreter does not see what PYTHONPATH adds to this one.
        python = str(interpreter(folder))
        if uv:
            make = [uv, "venv", "--no-project", "--python", base, str(folder)]
            install = [uv, "pip", "install", "--python", python, "-r", str(file)]
        else:
            make = module(base, "venv", str(folder), isolated=True)
            pip = module(python, "pip", "--disable-pip-version-check", "--no-input", isolated=True)
            install = [*pip, "install", "-r", str(file)]
        step(f"making {folder}", make)
        step(f"installing {packages} with {'uv' if uv else 'pip'} (minutes)", install)
        if locked:
            npm.prepare(locked, folder)
            step(f"installing {', '.join(npm.wanted(locked))} with npm (minutes)", npm.command(python, folder))
        content = json.loads(step("listing its packages", program(python, INSPECT, isolated=True)))
        _add_config(folder, Path(content["config"]))
        installed = {**content["packages"], **(npm.packages(locked) if locked else {})}
        stamp = {"name": name, "python": content["python"], "pins": digest(file), "packages": installed}
        writing.write_text(json.dumps(stamp, indent=1) + "\n", folder / STAMP)
    environment = find(name)
    assert environment is not None
    return environment


def _base_interpreter(file: Path, step: Step) -> str:
    """The interpreter with which to make an environment: one that is installed, or one that uv downloads.

    file: the file of pins, which names its Python versions.
    Raises XverifyError when there is none, and when the download fails.
    """
    versions = interpreters.wanted(file)
    found = interpreters.find(versions)
    if found:
        return found
    uv, newest = interpreters.uv(), versions.newest_first()[0]
    if uv is None:
        raise XverifyError(f"the environment {file.stem} cannot be made. {interpreters.explain(file)}")
    try:
        step(f"downloading Python {newest} with uv", [uv, "python", "install", newest])
    except XverifyError as error:
        raise XverifyError(
            f"the environment {file.stem} cannot be made. {interpreters.explain(file)} Install one of these versions, "
            "because uv cannot download one now:",
            *error.args,
        ) from None
    return step(f"finding Python {newest}", [uv, "python", "find", newest])


def _check_ensurepip(python: str) -> None:
    """Raise XverifyError when an interpreter cannot make environments. Debian has a separate package for this."""
    done = subprocess.run(program(python, "import ensurepip"), capture_output=True, check=False)
    if done.returncode != 0:
        package = f"python{interpreters.version_of(python)}-venv"
        raise XverifyError(
            f"{python} has no ensurepip, which makes environments. On Debian type: apt-get install {package}"
        )


def _add_config(folder: Path, config: Path) -> None:
    """Put a pythonX.Y-config beside the new interpreter, where Jittor looks for it to compile its core.

    config: the pythonX.Y-config of the base interpreter. The new file calls it; a link would not work, because the script prints
        paths relative to its own place.
    """
    script = interpreter(folder).with_name(config.name)
    if os.name == "posix" and config.is_file() and not script.exists():
        script.write_text(f'#!/bin/sh\nexec "{config}" "$@"\n', encoding="utf-8")
        script.chmod(0o755)


def remove(name: str) -> None:
    """Delete an environment, also an incomplete one. Raises UsageError when the folder is no environment."""
    folder = root() / name
    with _reported(folder), _alone(folder):
        shutil.rmtree(_put_aside(folder))


def size(folder: Path) -> int:
    """The total size of the files in a folder, in bytes."""
    return sum(os.lstat(os.path.join(place, file)).st_size for place, _, files in os.walk(folder) for file in files)


@contextmanager
def _reported(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise XverifyError(
            f"{error.filename or folder}: {error.strerror}; XVERIFY_ENVIRONMENTS names another place for environments"
        ) from None


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time work on an environment. Raises XverifyError when another one does."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    place = folder.with_name(f".{folder.name}.lock")
    reading.present(place)  # what is no file, such as a pipe, is not waited for
    with place.open("a") as lock:
        if fcntl:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise XverifyError(f"{folder}: another xverify command is working there; wait until it ends") from None
        yield


@contextmanager
def _in_place_of(folder: Path) -> Iterator[None]:
    """Move an older environment aside while a new one is made, and move it back when that fails.

    An environment contains its own path, so it cannot be used while it is aside.
    """
    aside = _put_aside(folder)
    try:
        yield
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        if (aside / STAMP).is_file():
            aside.rename(folder)
        raise
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def _put_aside(folder: Path) -> Path:
    """Move an environment's folder aside in one step, so that an interruption leaves no part of it in its place."""
    aside = folder.with_name(f".{folder.name}.aside")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        ours = (folder / STAMP).is_file() or (folder / "pyvenv.cfg").is_file() or not any(folder.iterdir())
        if not ours:
            raise UsageError(f"{folder} is not an environment: move it, or name another place in XVERIFY_ENVIRONMENTS")
        folder.rename(aside)
    return aside


def _step(name: str, doing: str, command: list[str], place: Path, listener: Listener) -> str:
    """Run a command to its end, and return the last line that it prints. Raises XverifyError when it fails.

    name, doing: the environment and the step, for the progress listener, which also gets the last line about once a second.
    place: the command's current directory.
    """
    listener.phase(name, doing)
    begun, lines = time.monotonic(), [""]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        encoding="utf-8",
        errors="replace",
        cwd=place,
        start_new_session=True,
    )
    try:
        reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
        reader.start()
        while reader.is_alive():
            reader.join(1)
            listener.beat(name, time.monotonic() - begun, lines[-1])
        code = process.wait()
    except BaseException:
        kill_group(process)
        process.wait()
        raise
    if code != 0:
        raise XverifyError(f"{name}: {doing} failed:", *_reason(lines))
    return lines[-1]


def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip())


def _reason(lines: list[str]) -> list[str]:
    """The last lines that say why an installer failed, at most MOST_REASONS of them."""
    reasons = [line for line in lines if line.strip() and not line.strip().startswith(NOISE)]
    return reasons[-MOST_REASONS:]
