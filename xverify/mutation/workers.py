"""The two processes that every mutation compares: a reference and a port, both workers of torch."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..framework import discovery as frameworks
from ..progress import Listener
from ..reference.reference import Reference
from ..reference.request import Request
from ..worker.process import Worker
from ..workload.spec import ModelFolder


@contextmanager
def reference_and_port(request: Request, folder: ModelFolder, listener: Listener) -> Iterator[tuple[Reference, Worker]]:
    """A reference with its weights and inputs settled, and the started process of a port. Both end with the context."""
    torch = frameworks.load("torch")
    python = request.python.get("torch", sys.executable)
    with tempfile.TemporaryDirectory(prefix="xverify-") as directory:
        workers = []
        for name in ("reference", "port"):
            place = Path(directory) / name
            place.mkdir()
            workers.append(Worker(torch, python, place, request.threads, "cpu", request.timeout))
        reference, port = Reference(request, folder, workers[0], listener), workers[1]
        try:
            reference.settle()
            port.start()
            yield reference, port
        finally:
            for worker in workers:
                worker.close()
