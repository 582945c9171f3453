"""The two processes that every mutation compares: a reference and a port, both workers of torch."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..progress import Listener
from ..reference.build import Prepared, ReferenceProcess, prepare, reference_workers
from ..worker.process import Worker
from ..workload.request import Request
from ..workload.spec import ModelFolder


@contextmanager
def reference_and_port(
    request: Request, folder: ModelFolder, listener: Listener
) -> Iterator[tuple[ReferenceProcess, Prepared, Worker]]:
    """A reference with its weights and inputs, and the started process of a port. Both end with the context."""
    with tempfile.TemporaryDirectory(prefix="xverify-") as directory:
        reference, port = reference_workers(request, Path(directory), ("reference", "port"))
        process = ReferenceProcess(request, folder, reference, listener)
        try:
            prepared = prepare(process)
            port.start()
            yield process, prepared, port
        finally:
            reference.close()
            port.close()
