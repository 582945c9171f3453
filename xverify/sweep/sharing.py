"""Files that travel between the machines of a cluster: model folders and weight files to a worker, results from it.

They travel through a place that all machines can reach: a shared folder, or a URL of fsspec such as ``s3://bucket/xverify``. What
is sent has its digest as its name, so it travels once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from .. import host, installed
from ..errors import UsageError, XverifyError, first_line
from ..framework import ports
from ..outputs import Output
from ..receipts.keeping import common_root, model_files
from ..weights import sharded
from ..workload.digests import files_digest
from ..workload.options import NO_FILES
from ..workload.spec import find_model, zoo
from .matrix import Cell

CACHE = "sweep"  # the folder below the user's cache of xverify
SENT, RESULTS = "sent", "results"


@dataclass(frozen=True)
class Sent:
    """A cell whose files were sent.

    folder: digest of its model folder -> and the folder's name below it; None for a model of the zoo.
    weights: what names its weights, below the folder of all that is sent: a file, or the folder of sharded files; None without any.
    weight_files: the files that these weights are in, below the same folder.
    """

    cell: Cell
    folder: str | None = None
    weights: str | None = None
    weight_files: tuple[str, ...] = ()


class Place:
    """A folder or URL that all machines of a cluster can reach. Raises UsageError when fsspec does not know such URLs."""

    def __init__(self, url: str) -> None:
        try:
            import fsspec
        except ModuleNotFoundError:
            raise UsageError(f"--share needs fsspec: {installed.extra('cluster')}") from None
        self.url = url if "://" in url else Path(url).resolve().as_uri()
        try:
            self.files, self.root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise UsageError(f"--share {url}: {first_line(error)}") from None

    def path(self, *names: str) -> str:
        """A path below the place, in the words of its file system."""
        return "/".join([self.root.rstrip("/"), *names])

    def put(self, file: Path, *names: str) -> None:
        """Copy a file to the place, under a name of its own until it is whole. Raises XverifyError."""
        target = self.path(*names)
        check_no_links(self.url, names)
        with _told(f"{self.url}/{'/'.join(names)} cannot be written"):
            self.files.makedirs(target.rpartition("/")[0], exist_ok=True)
            partial = f"{target}.{uuid.uuid4().hex}.partial"
            self.files.put_file(str(file), partial)
            self.files.mv(partial, target)

    def get(self, target: Path, *names: str) -> None:
        """Copy a file from the place. Raises XverifyError."""
        with _told(f"{self.url}/{'/'.join(names)} cannot be read"):
            target.parent.mkdir(parents=True, exist_ok=True)
            handle, partial = tempfile.mkstemp(dir=target.parent)
            os.close(handle)
            self.files.get_file(self.path(*names), partial)
            os.replace(partial, target)

    def has(self, *names: str) -> bool:
        """Whether the place has this file."""
        with _told(f"{self.url} cannot be read"):
            found = self.files.exists(self.path(*names))
        return bool(found)

    def names(self, *names: str) -> list[str]:
        """The files below a folder of the place, relative to it."""
        folder = self.path(*names)
        with _told(f"{self.url}/{'/'.join(names)} cannot be read"):
            found = self.files.find(folder)
        return [path[path.index(folder) + len(folder) + 1 :] for path in found]


def local(url: str) -> Path | None:
    """The folder that --share names; None for a URL of another file system."""
    if "://" not in url:
        return Path(url)
    parts = urlsplit(url)
    return Path(url2pathname(parts.path)) if parts.scheme == "file" else None


def outputs_of(url: str) -> list[Output]:
    """The folders of a shared one that are written to, for ``outputs.check``. Raises UsageError when it cannot be used."""
    folder = local(url)
    if folder is None:
        return []
    if folder.exists() and not folder.is_dir():
        raise UsageError(f"--share {folder} is no folder: name one, or a place for a new one")
    for name in (SENT, RESULTS):
        check_no_links(url, (name,))
    return [Output("--share", folder / name) for name in (SENT, RESULTS)]


def check_no_links(url: str, names: Sequence[str]) -> None:
    """Raise UsageError for a link below a shared folder: what is written would be in the place that it leads to."""
    path = local(url)
    if path is None:
        return
    for name in "/".join(names).split("/"):
        path = path / name
        if path.is_symlink():
            raise UsageError(f"--share: {path} is a link, and is never followed: remove it, or name another place")


def send(cell: Cell, place: Place) -> Sent:
    """Send the model folder and the weights of a cell. Raises XverifyError."""
    folder = weights = None
    weight_files: tuple[str, ...] = ()
    for port in filter(None, map(ports.parse, cell.subjects or ())):
        raise UsageError(
            f"--subjects {port}: a file outside of the model folder is not sent to other machines; put it into the folder, with "
            "the name FRAMEWORK-NAME.py"
        )
    if cell.model not in zoo():
        model = find_model(cell.model)
        root = common_root(model)
        digest = model.digest().partition(":")[2]
        inside = model.path.relative_to(root).as_posix()
        files, links = model_files(model)
        for link in links:
            raise UsageError(
                f"{link} leads out of the model folder, or to a folder, and is not sent to other machines: replace the link "
                "by what it leads to"
            )
        for file in files:
            name = file.relative_to(root).as_posix()
            if not place.has(SENT, digest, name):
                place.put(file, SENT, digest, name)
        folder = f"{digest}/{inside}"
    given = cell.settings.weights
    if given is not None and given not in NO_FILES:
        path = Path(given)
        files = list(sharded.files(path)) if sharded.is_sharded(path) else [path]
        digest = files_digest(files).partition(":")[2]
        weights = digest if path.is_dir() else f"{digest}/{path.name}"
        weight_files = tuple(f"{digest}/{file.name}" for file in files)
        for file, name in zip(files, weight_files):
            if not place.has(SENT, name):
                place.put(file, SENT, name)
    return Sent(cell, folder, weights, weight_files)


def fetch(sent: Sent, place: Place) -> Cell:
    """The cell with its files on this machine. Raises XverifyError."""
    cell = sent.cell
    if sent.folder is not None:
        digest, _, inside = sent.folder.partition("/")
        target = cache() / digest
        if not target.is_dir():
            with tempfile.TemporaryDirectory(dir=_made(cache())) as partial:
                for name in place.names(SENT, digest):
                    place.get(Path(partial, "files", name), SENT, digest, name)
                _rename(Path(partial, "files"), target)
        cell = replace(cell, model=str(target / inside))
    if sent.weights is not None:
        for name in sent.weight_files:
            if not (cache() / name).is_file():
                place.get(cache() / name, SENT, name)
        cell = replace(cell, settings=replace(cell.settings, weights=str(cache() / sent.weights)))
    return cell


def cache() -> Path:
    """The folder on this machine that keeps what was fetched."""
    return host.expanded(os.environ.get("XDG_CACHE_HOME") or "~/.cache") / "xverify" / CACHE


def _made(folder: Path) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _rename(folder: Path, target: Path) -> None:
    """Rename a folder that is whole, unless another process has done so."""
    try:
        folder.rename(target)
    except OSError:
        if not target.is_dir():
            raise
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def _told(what: str) -> Iterator[None]:
    """Make whatever goes wrong with a file system an XverifyError. Each has errors of its own."""
    try:
        yield
    except XverifyError:
        raise
    except Exception as error:
        raise XverifyError(f"{what}: {first_line(error)}") from None
