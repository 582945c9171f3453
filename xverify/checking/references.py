"""What files are compared with: a model, another file, recorded tensors, or outputs that are known already."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..errors import Absent, SubjectError, TimedOut, UsageError
from ..framework import formats
from ..processes.worker import Worker
from ..results.records import ReferenceSummary
from . import model, sequence
from .candidate import REFERENCE, Context, Evaluated, Known, ReferenceFailed, Target, Tools, attempt
from .computing import Cases, sized
from .graphs import with_graph
from .judge import runtime
from .meaning import Meaning, own_meaning, perturbed_meaning
from .nodes import judge_nodes
from .reference import check, is_recorded, read
from .steady import in_sequence, randomness
from .subject import File, Opened, make_worker, open_file

Ready = TypeVar("Ready")


class Reference(Protocol[Ready]):
    """What files are compared with."""

    @property
    def files(self) -> tuple[File, ...]:
        """The reference, when it is a file."""

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The processes of the reference."""

    def open(self) -> Ready:
        """Start its processes. Raises XverifyError, which counts when its outputs are needed."""

    def known(self, ready: Future[Ready], files: Sequence[Opened], tools: Tools) -> Known:
        """The reference with its outputs.

        ready: what ``open`` returned. files: the files under test that could be opened. Raises UsageError.
        """


@dataclass(frozen=True)
class Given:
    """Outputs that are known already, with their cases."""

    target: Target
    files: tuple[File, ...] = ()
    workers: tuple[Worker, ...] = ()

    def open(self) -> None:
        """There is nothing to start."""

    def known(self, ready: Future[None], files: Sequence[Opened], tools: Tools) -> Known:
        """Return the outputs that were given."""
        return Known(self.target)


@dataclass(frozen=True)
class RecordedReference:
    """Recorded inputs and outputs in a file or folder."""

    context: Context
    path: Path
    files: tuple[File, ...] = ()
    workers: tuple[Worker, ...] = ()

    def open(self) -> None:
        """There is nothing to start."""

    def known(self, ready: Future[None], files: Sequence[Opened], tools: Tools) -> Known:
        """What was recorded, with the names of the first file that could be opened."""
        settings = self.context.settings
        if not files:
            return Known(None, own_summary(str(self.path)))
        recorded = read(self.path, files[0].signature.inputs, files[0].signature.outputs)
        sequence.check_count(recorded.cases, settings, f"--against {self.path}")
        sequence.resolve(settings, recorded.tensors("input"), recorded.tensors("output"), self.path.name)
        says = f"recorded in {self.path.name}"
        cases = Cases(recorded.inputs, recorded.cases, (says,) * recorded.cases, sized(recorded.inputs))
        meaning = Meaning(recorded.outputs, recorded.outputs, None, False, "recorded", says)
        return Known(Target(cases, meaning), own_summary(str(settings.against), meaning))


@dataclass(frozen=True)
class FileReference:
    """A reference that is another model file."""

    context: Context
    file: File

    @property
    def files(self) -> tuple[File, ...]:
        """The model file that is the reference."""
        return (self.file,)

    @property
    def workers(self) -> tuple[Worker, ...]:
        """The process in which the file is opened."""
        return (self.file.worker,)

    def open(self) -> Opened:
        """Open the file. Raises SubjectError."""
        found = attempt(
            self.context, self.file, "opening the file", lambda: open_file(self.file, self.context.settings)
        )
        if isinstance(found, SubjectError):
            raise found
        return found

    def known(self, ready: Future[Opened], files: Sequence[Opened], tools: Tools) -> Known:
        """What the file says in float64, on its own input cases."""
        if not files:
            return Known(None, own_summary(str(self.file.path)))
        try:
            return self._evaluated(ready.result(), tools)
        except SubjectError as error:
            raise ReferenceFailed(f"--against {self.file.path}: {error}") from None

    def _evaluated(self, opened: Opened, tools: Tools) -> Known:
        context, graphs, settings = self.context, tools.graphs, self.context.settings
        cases, computed = tools.guess(opened)
        opened = with_graph(replace(opened, state=computed.state), computed.inputs, graphs, context.notes)
        random = randomness(opened, computed.inputs, computed.own, graphs)
        if random:
            opened, computed = in_sequence(opened, computed, graphs)
            random = "" if opened.keeps else random
            context.notes.extend(computed.notes[-1:] if opened.keeps else ())
        if random:
            return Known(Absent(f"the reference is random: {random}"), own_summary(str(settings.against)))
        context.listener.phase("reference", "evaluating it in float64")
        try:
            left = context.clock.left
            own = own_meaning(opened, computed.inputs, computed.own, graphs, settings.seed, context.notes, left)
        except TimedOut as error:
            if opened.graph is None:  # its own worker is gone
                raise
            own = None
            context.notes.append(f"{opened.label}: {error}; its runtime alone says what it computes")
        meaning = own or perturbed_meaning(opened, computed.inputs, computed.own, settings.seed)
        target = Target(cases, meaning, Evaluated(opened, cases, computed, own=own))
        if settings.time and own is not None:  # the reference is timed, and its speed counts when it is right
            layers = judge_nodes(opened, computed.inputs, graphs, 0, settings.seed, context.clock.left)
            judged = runtime(computed, own, cases.count, layers, opened.form.title)
            target = replace(target, judged=judged)
        return Known(target, own_summary(str(settings.against), meaning))


def own_summary(name: str, meaning: Meaning | None = None) -> ReferenceSummary:
    """The summary of outputs that are no model's. name: where they come from. meaning: the outputs, where they are known."""
    return ReferenceSummary(
        framework=name,
        precision=meaning.precision if meaning else "float64",
        floor=meaning.says if meaning else "the rounding of every node, modelled and measured in float64",
    )


def find(context: Context) -> Reference[Any] | None:
    """The reference that --against names; None without one. Raises UsageError."""
    settings = context.settings
    found = model.find(context)
    if found is not None or settings.against is None:
        return found
    path = Path(settings.against)
    if is_recorded(path):
        check(path)
        return RecordedReference(context, path)
    try:
        form = formats.examine(path, "", settings.trust)
    except UsageError as error:
        raise UsageError(f"--against {error}") from None
    worker = make_worker("reference", form, context.space, settings, context.listener)
    return FileReference(context, File(f"{path.name}{REFERENCE}", path, form, worker))
