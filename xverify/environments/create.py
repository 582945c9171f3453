"""Making an environment and taking it away. Whatever goes wrong, nothing half-made is left that a run would take."""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import UsageError, XverifyError
from ..host import kill_group
from ..progress import Listener
from .store import STAMP, Environment, digest, find, interpreter, pins, root

try:
    import fcntl
except ImportError:  # Windows has none
    fcntl = None  # type: ignore[assignment]

INSPECT = """
import importlib.metadata, json, sys
packages = {found.metadata["Name"]: found.version for found in importlib.metadata.distributions()}
print(json.dumps({"python": sys.version.split()[0], "packages": packages}))
"""
# What installers say beside the reason.
NOISE = (
    *("Looking in", "Collecting", "Using cached", "Downloading", "Requirement already", "WARNING:", "[notice]"),
    *("note:", "hint:", "[end of output]", "╰─> See above"),
)


def create(name: str, listener: Listener) -> Environment:
    """Make an environment from its pins, in place of what stands there. Raises XverifyError with the installer's last lines.

    A whole one that stands there comes back when the new one fails.
    """
    folder, file = root() / name, pins()[name]
    uv = shutil.which("uv")
    if uv is None and importlib.util.find_spec("ensurepip") is None:
        package = f"python{sys.version_info.major}.{sys.version_info.minor}-venv"
        raise XverifyError(
            f"{sys.executable} has no ensurepip to make environments with. On Debian type: apt-get install {package}"
        )
    with _reported(folder), _alone(folder), _in_place_of(folder):
        # -I: what PYTHONPATH lends to this interpreter is not there for the new one.
        python = str(interpreter(folder))
        if uv:
            make = [uv, "venv", "--no-project", "--python", sys.executable, str(folder)]
            install = [uv, "pip", "install", "--python", python, "-r", str(file)]
        else:
            make = [sys.executable, "-I", "-m", "venv", str(folder)]
            pip = [python, "-I", "-m", "pip", "--disable-pip-version-check", "--no-input"]
            install = [*pip, "install", "-r", str(file)]

        def step(doing: str, command: list[str]) -> str:
            return _step(name, doing, command, file.parent, listener)

        step(f"making {folder}", make)
        step(f"installing {file.name} with {'uv' if uv else 'pip'} (minutes)", install)
        found = json.loads(step("looking what is there", [python, "-I", "-c", INSPECT]))
        stamp = {"name": name, "python": found["python"], "pins": digest(file), "packages": found["packages"]}
        (folder / STAMP).write_text(json.dumps(stamp, indent=1) + "\n")
    environment = find(name)
    assert environment is not None
    return environment


def remove(name: str) -> None:
    """Delete an environment, whole or half-made. Raises UsageError when the folder is something else."""
    folder = root() / name
    with _reported(folder), _alone(folder):
        shutil.rmtree(_put_aside(folder))


def size(folder: Path) -> int:
    """Bytes of the files in a folder."""
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
    """One process at a time works on an environment."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(f".{folder.name}.lock").open("w") as lock:
        if fcntl:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise XverifyError(f"{folder}: another xverify is at work there; wait for it to end") from None
        yield


@contextmanager
def _in_place_of(folder: Path) -> Iterator[None]:
    """Put what stands there aside while a new one is made; bring it back when that fails and it was whole.

    Environments hold their own path, so that they can stand aside but not be used there.
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
    """Take an environment's folder out of its place at once, so that what is interrupted later leaves no part of it there."""
    aside = folder.with_name(f".{folder.name}.aside")
    shutil.rmtree(aside, ignore_errors=True)
    if folder.exists():
        ours = (folder / STAMP).is_file() or (folder / "pyvenv.cfg").is_file() or not any(folder.iterdir())
        if not ours:
            raise UsageError(f"{folder} is no environment: move it, or name another place in XVERIFY_ENVIRONMENTS")
        folder.rename(aside)
    return aside


def _step(name: str, doing: str, command: list[str], place: Path, listener: Listener) -> str:
    """Run a command to its end, passing on the last line that it prints, which is returned. place: its current directory."""
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
    reader = threading.Thread(target=_read, args=(process, lines), daemon=True)
    reader.start()
    try:
        while reader.is_alive():
            reader.join(1)
            listener.beat(name, time.monotonic() - begun, lines[-1])
        code = process.wait()
    except BaseException:
        kill_group(process)
        process.wait()
        raise
    if code != 0:
        raise XverifyError(f"{name}: {doing} failed:\n" + "\n".join(f"  {line}" for line in _reason(lines)))
    return lines[-1]


def _read(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        lines.append(line.rstrip())


def _reason(lines: list[str], most: int = 8) -> list[str]:
    """The last lines that say why."""
    told = [line for line in lines if line.strip() and not line.strip().startswith(NOISE)]
    return told[-most:]
