"""The two processes that every mutation compares: a reference of torch, and a port."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from ..errors import UsageError
from ..framework.adapter import Framework
from ..framework.discovery import parse_subject
from ..processes.space import temporary_folder
from ..processes.worker import Worker
from ..progress import Listener
from ..reference.build import Prepared, ReferenceProcess, prepare, reference_workers
from ..reference.request import resolve
from ..workload.options import RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder

TORCH = "torch:eager"  # the subject in whose own layers and training code faults are planted


@dataclass(frozen=True)
class Subject:
    """The framework of a port, and its mode."""

    adapter: type[Framework]
    mode: str

    @classmethod
    def parse(cls, text: str) -> Subject:
        """A subject as the user writes it. Raises UsageError."""
        subject = cls(*parse_subject(text))
        if subject.adapter.path is not None:
            raise UsageError(f"--subjects {text}: faults are planted in files of a model folder; name one of them")
        return subject

    @property
    def label(self) -> str:
        return self.adapter.label(self.mode)

    @property
    def is_torch(self) -> bool:
        """Whether faults are planted in the port's own layers, which are those of the reference."""
        return self.adapter.called() == "torch"

    @property
    def trains_in_torch(self) -> bool:
        """Whether mistakes are made in torch's training code; the port may be any file of torch."""
        return self.adapter.name == "torch"


def request_for(model: str, subject: Subject, settings: RunSettings) -> tuple[Request, ModelFolder]:
    """The request of a mutation, whose reference is torch. Raises UsageError."""
    return resolve(model, [TORCH, subject.label], settings)


@contextmanager
def reference_and_port(
    request: Request, folder: ModelFolder, subject: Subject, listener: Listener
) -> Iterator[tuple[ReferenceProcess, Prepared, Worker]]:
    """A reference with its weights and inputs, and the started process of a port. Both end with the context."""
    with temporary_folder() as directory:
        (reference,) = reference_workers(request, directory, ("reference",))
        place = directory / "port"
        place.mkdir()
        python = request.python.get(subject.adapter.name, sys.executable)
        port = Worker(
            subject.adapter, python, place, request.threads, request.device, request.timeout, memory=request.memory
        )
        process = ReferenceProcess(request, folder, reference, listener)
        try:
            prepared = prepare(process)
            port.start()
            yield process, prepared, port
        finally:
            reference.close()
            port.close()
