"""A file under test, and the reference, with what a check has found out about them so far."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from ..errors import Failed, SubjectError
from ..framework.modelfile import ModelFile
from ..processes.worker import Worker
from ..progress import Listener
from ..results.layers import Layers
from ..results.precision import Precision, Quantisation
from .computing import Cases, Computed
from .judge import Judged
from .meaning import Meaning
from .subject import Opened

REFERENCE = " (reference)"  # what the label of a reference ends with


@dataclass(frozen=True)
class Target:
    """The reference: its input cases and its outputs."""

    cases: Cases
    meaning: Meaning


@dataclass
class Candidate:
    """One file on one runtime, with what has been found out about it so far. A failure ends this candidate only.

    opened: the file in its worker. own: its meaning. layers: the verdicts on its nodes.
    precision: of its weights and arithmetic. quantisation: what that costs, for a quantised file.
    judged: of a reference that is timed: whether its runtime computes what it says. failure: why it ended.
    """

    label: str
    path: Path
    form: type[ModelFile]
    worker: Worker
    opened: Opened | None = None
    cases: Cases | None = None
    computed: Computed | None = None
    own: Meaning | None = None
    layers: Layers | None = None
    precision: Precision | None = None
    quantisation: Quantisation | None = None
    judged: Judged | None = None
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
            listener.ended(self.label, error.status)
        except MemoryError:
            self.failure = self.failure or Failed("there is not enough memory to compare its outputs")
            self.worker.close()
            listener.ended(self.label, self.failure.status)
        else:
            if self.failure is None:
                listener.ended(self.label, "")
