"""One check from files to result: open -> input cases -> matching -> compute -> exact outputs -> comparison."""

from __future__ import annotations

import datetime
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .. import host
from ..errors import SubjectError
from ..framework import discovery
from ..framework.modelfile import ModelFile
from ..progress import Listener
from ..weights.canonical import Array
from ..worker.command import interpreter
from ..worker.process import Worker
from .figures import Condition
from .options import CheckSettings
from .subject import Opened, make_worker, open_file


@dataclass
class Candidate:
    """One file on one runtime, with what has been found out about it so far. A failure ends this candidate only.

    opened: the file in its worker. failure: why it ended.
    """

    label: str
    path: Path
    form: type[ModelFile]
    worker: Worker
    opened: Opened | None = None
    failure: SubjectError | None = None

    @contextmanager
    def stage(self, listener: Listener, doing: str) -> Iterator[None]:
        """Report a stage to the listener. When the stage raises SubjectError, the candidate has failed."""
        if self.failure is None:
            listener.phase(self.label, doing)
        try:
            yield
        except SubjectError as error:
            self.failure = self.failure or error
            self.worker.close()


class Check:
    """Checks some files.

    chosen: each file with its format. wanted: the conditions of --accept. space: an empty folder for files of the check.
    """

    def __init__(
        self,
        chosen: Sequence[tuple[Path, type[ModelFile]]],
        settings: CheckSettings,
        wanted: Sequence[Condition],
        listener: Listener,
        space: Path,
    ) -> None:
        self.settings, self.wanted, self.listener, self.space = settings, wanted, listener, space
        self.created = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.begun = time.monotonic()
        self.notes: list[str] = []
        several = len({path.name for path, _ in chosen}) < len(chosen)
        self.candidates = [
            Candidate(label, path, form, make_worker(label, form, space, settings, listener))
            for path, form in chosen
            for label in [f"{path}:{form.runtime}" if several else path.name]
        ]
