"""Writes a receipt while its run works. receipt.json comes last, so that a folder without it is known to be incomplete."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

from .. import writing
from ..errors import NotWritten, UsageError, first_line
from ..framework import ports
from ..results.records import Result, plain
from ..version import __version__
from ..workload.code import Code
from ..workload.digests import file_digest
from ..workload.options import RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .machine import adapters, packages
from .records import FILES, INPUTS, PORTS, RECEIPT, RESULT, VERSION, WEIGHTS

LARGEST_FILE = 2**28  # bytes; a larger file of the model folder is not kept, because its weights are kept as arrays
MOST_FILES, MOST_BYTES = 5000, 2**30  # of a model folder
PASSED_OVER = ("__pycache__",)
SOURCES = (".py", ".toml")  # without these of its files, a model is another one


class Keeper:
    """Writes the receipt of one run.

    place: a folder that does not exist, or that is empty (see writing.check_new_folder). settings: what the user asked for.
    Nothing of the receipt is left behind unless ``finish`` has written all of it.
    """

    def __init__(self, place: Path, settings: RunSettings) -> None:
        self.place, self.settings = place, settings
        self.made = False  # whether the folder was made by this keeper
        self.complete = False
        self.requests: list[Request] = []
        self.folder: ModelFolder | None = None
        self.left_out: list[str] = []
        self.notes: list[str] = []  # what the user is told of files that are not kept
        self.written: list[Path] = []
        self.digests: dict[str, str] = {}  # path in the receipt -> digest of the file
        self.problem = ""  # why something that was measured could not be kept

    def __enter__(self) -> Keeper:
        self.made = not self.place.exists()
        with _told(self.place):
            self.place.mkdir(exist_ok=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.complete:
            return
        for path in self.written:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
        folders = {folder for path in self.written for folder in path.parents if self.place in folder.parents}
        for folder in [*sorted(folders, key=lambda each: -len(each.parts)), *([self.place] if self.made else [])]:
            with contextlib.suppress(OSError):  # it holds something that is not of this receipt
                folder.rmdir()

    def begin(self, request: Request, folder: ModelFolder) -> None:
        """Keep the files of the model, before anything is measured.

        Raises UsageError for a folder that is too large, and NotWritten.
        """
        self.requests.append(request)
        if self.folder is not None:
            return
        self.folder = folder
        root = common_root(folder)
        with _told(self.place):
            files, links = model_files(folder)
            for path in links:
                if path.suffix in SOURCES:
                    raise UsageError(
                        f"--receipt: {path} is a link to {path.resolve()}, and a receipt keeps what is in the model folder; leave "
                        "--receipt out, or copy the file into the folder"
                    )
                self.left_out.append(f"{FILES}/{path.relative_to(root).as_posix()}")
            if links:
                names = ", ".join(str(path) for path in links[:3]) + (", …" if len(links) > 3 else "")
                self.notes.append(f"the receipt has no copy of {names}: a link out of the model folder is not followed")
            for path in files:
                name = f"{FILES}/{path.relative_to(root).as_posix()}"
                if path.stat().st_size > LARGEST_FILE:
                    self.left_out.append(name)
                else:
                    self._copy(path, name)
            for port, code in folder.ports.items():
                for path in _files_of(code):
                    self._copy(path, f"{PORTS}/{port}/{path.relative_to(code.file.parent).as_posix()}")

    def keep(self, task: str, weights: Path, inputs: Path) -> None:
        """Keep the weights and inputs of a task. A failure is told at the end, when nothing that was measured can be lost."""
        try:
            with _told(self.place):
                self._copy(weights, f"{task}/{WEIGHTS}")
                self._copy(inputs, f"{task}/{INPUTS}")
        except NotWritten as error:
            self.problem = self.problem or str(error)

    def finish(self, result: Result) -> None:
        """Write the result and what was noted on the way. Raises NotWritten, which holds the result."""
        assert self.folder is not None
        try:
            if self.problem:
                raise NotWritten(self.problem)
            with _told(self.place):
                self.written += [self.place / RESULT, self.place / RECEIPT]
                writing.write_text(json.dumps(result.to_dict(), indent=1) + "\n", self.place / RESULT)
                self.digests[RESULT] = file_digest(self.place / RESULT)
                writing.write_text(json.dumps(self._noted(result), indent=1) + "\n", self.place / RECEIPT)
        except NotWritten as error:
            error.result = result
            raise
        self.complete = True

    def _noted(self, result: Result) -> dict[str, object]:
        """The content of receipt.json, with a digest over all the rest of it."""
        assert self.folder is not None
        first = self.requests[0]
        given = any(
            "batch" in each.sizes for each in self.requests
        )  # a batch that was not given is the model's, which may change
        settings = replace(self.settings, batch=self.settings.batch if given else first.batch, threads=first.threads)
        model = f"{FILES}/{self.folder.path.relative_to(common_root(self.folder)).as_posix()}"
        python = {name: path for each in self.requests for name, path in each.python.items()}
        noted: dict[str, object] = {
            "receipt_version": VERSION,
            "xverify": __version__,
            "created": result.created,
            "model": model,
            "settings": plain({name: _simple(value) for name, value in vars(settings).items()}),
            "tasks": {each.task: {"subjects": [_kept(text) for text in each.subjects]} for each in self.requests},
            "packages": packages(python),
            "adapters": adapters(text for each in self.requests for text in each.subjects),
            "left_out": self.left_out,
            "files": dict(sorted(self.digests.items())),
        }
        return {**noted, "digest": own_digest(noted)}

    def _copy(self, source: Path, name: str) -> None:
        target = self.place / name
        self.written.append(target)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        self.digests[name] = file_digest(target)


def common_root(folder: ModelFolder) -> Path:
    """The folder that holds the model folder and the folder of its code, so that one finds the other in a copy of both."""
    return Path(os.path.commonpath([folder.path.parent, folder.code.parent]))


def own_digest(noted: Mapping[str, object]) -> str:
    """The digest of the content of receipt.json, without that digest itself."""
    rest = {name: value for name, value in noted.items() if name != "digest"}
    return f"sha256:{hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()}"


def model_files(folder: ModelFolder) -> tuple[list[Path], list[Path]]:
    """The files of the model folder and of its code, without hidden ones; and the links in them that are not followed.

    These lead out of both folders, or to a folder. Raises UsageError when there are too many files to keep.
    """
    files: dict[Path, None] = {}
    links: dict[Path, None] = {}
    size = 0
    places = tuple(dict.fromkeys((folder.path, folder.code)))
    inside = [place.resolve() for place in places]
    for place in places:
        for here, folders, names in os.walk(place):
            folders[:] = sorted(name for name in folders if name[0] != "." and name not in PASSED_OVER)
            links |= {path: None for name in folders if (path := Path(here, name)).is_symlink()}
            for path in (Path(here, name) for name in sorted(names) if name[0] != "."):
                if path.is_symlink() and not any(path.resolve().is_relative_to(each) for each in inside):
                    links[path] = None
                elif path.is_file() and path not in files:
                    files[path] = None
                    bytes_of = path.stat().st_size
                    size += bytes_of if bytes_of <= LARGEST_FILE else 0
                if len(files) > MOST_FILES or size > MOST_BYTES:
                    raise UsageError(
                        f"--receipt: {place} has more than {MOST_FILES} files, or more than {MOST_BYTES >> 20} MiB of them: move "
                        "what the model files do not read to another folder"
                    )
    return list(files), list(links)


def _files_of(code: Code) -> list[Path]:
    """A file elsewhere, and those that it imports. Raises UsageError for one in another folder, which would not be found again."""
    folder, files = code.file.parent, ports.files_of(code.file)[1:]
    for path in map(Path.resolve, files):
        if not path.is_relative_to(folder.resolve()):
            raise UsageError(
                f"--receipt: {code.file} imports {path}, and a receipt keeps what is in the folder of a subject's file; leave "
                "--receipt out, or move the files into one folder"
            )
    return [code.file, *(folder / path.resolve().relative_to(folder.resolve()) for path in files)]


def _kept(text: str) -> str:
    """A subject with the file in the receipt that it names."""
    port = ports.parse(text)
    return text if port is None else str(replace(port, path=Path(PORTS, port.name, port.path.name)))


def _simple(value: Any) -> Any:
    """A setting as a JSON value."""
    if isinstance(value, Path):
        return str(value)
    return dict(value) if isinstance(value, dict) else list(value) if isinstance(value, tuple) else value


@contextlib.contextmanager
def _told(place: Path) -> Iterator[None]:
    """Make an error of the system NotWritten, with the folder of the receipt."""
    try:
        yield
    except NotWritten as error:
        raise NotWritten(f"the receipt {place} is not written: {error}") from None
    except OSError as error:
        says = error.strerror or first_line(error)
        if isinstance(error, (PermissionError, FileNotFoundError)) and error.filename:
            says = f"{error.filename}: {says}"
        raise NotWritten(f"the receipt {place} is not written: {says}") from None
