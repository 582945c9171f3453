"""One conversion: source -> weights and inputs -> steps of the target -> exact outputs -> the file in its place -> check."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from .. import host, messages
from ..checking.options import CheckSettings
from ..environments import store as environments
from ..errors import Failed, NotInstalled, Unsupported, UsageError, with_article
from ..framework import converter, discovery
from ..framework.adapter import Framework
from ..framework.converter import Step
from ..messages.conversion import Convert, FindLayers
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..progress import Listener
from ..reference import build, truth
from ..reference.build import Prepared, ReferenceProcess
from ..reference.request import resolve
from ..reference.subjects import REFERENCE
from ..results.records import Result
from ..workload.options import OWN_WEIGHTS, RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder
from . import checked, source
from .keeping import AUTO, named_layers
from .options import ConvertSettings
from .planner import Mixing, Planned, Planner
from .target import Target


@dataclass(frozen=True)
class Conversion:
    """What is converted, and how.

    target: the format and its place. settings: of the conversion. checking: of the check that follows.
    space: an empty folder for files of the conversion.
    """

    target: Target
    settings: ConvertSettings
    checking: CheckSettings
    listener: Listener
    space: Path

    def execute(self, text: str) -> Result:
        """Convert and check. Raises UsageError and SubjectError when there is no file in the end.

        text: the source, as in ``source.find``.
        """
        self._check_installed(self.target.form.steps(self.settings.quantize))
        threads, place = self.checking.threads, self.space / "source"
        folder = source.find(text, self.settings.shape or {}, place, threads, self.listener)
        self._check_model(folder, text)
        request = self._request(folder)
        worker = self._worker(discovery.load(REFERENCE), "reference")
        process = ReferenceProcess(request, folder, worker, self.listener)
        with staged_folder(self.target) as staged:
            try:
                prepared = build.prepare(process)
                if prepared.random:
                    raise Failed(prepared.random)
                says = self._convert(process, prepared, staged)
                exact = truth.evaluate(process, prepared, truth.compute_float32(process, prepared))
            finally:
                worker.close()
            if exact.unusable:
                raise Failed(exact.unusable)
            against = checked.Against(text, folder, request, prepared, exact)
            planned = self._planned(against, staged) if self.settings.keep == AUTO else None
            self.target.take(staged)
        says = says if planned is None else [*says[:-1], planned.says]
        made = f"{folder.name} was converted by {', then '.join(says)}; weights: {prepared.weights_source}"
        self.listener.phase(self.target.path.name, "checking it against the reference in float64")
        return checked.check(self.target.path, against, self.checking, made, self.listener, planned)

    # -- before anything starts ---------------------------------------------------------------------------------------

    def _check_installed(self, steps: Sequence[Step]) -> None:
        """Raise NotInstalled when a framework of the conversion is missing here and has no environment, or a package is missing."""
        title = with_article(self.target.form.title)
        for step in steps:
            adapter = discovery.load(step.framework)
            if environments.chosen(adapter) is not None:
                continue
            lacks = host.missing(adapter)
            if lacks:
                raise NotInstalled(
                    f"a conversion to {title} needs {', '.join(lacks)}, which is not installed; type: "
                    f"{environments.remedy(adapter)}"
                )
            if step.module:
                quantised = f" in {self.settings.quantize}" if self.settings.quantize else ""
                converter.need(step.module, f"a conversion to {title}{quantised}")

    def _check_model(self, folder: ModelFolder, text: str) -> None:
        """Raise UsageError or Unsupported when this model cannot become such a file. text: the source."""
        form, flow = self.target.form, folder.spec.control_flow
        if flow and form.name != "torchscript":
            raise Unsupported(
                f"{folder.name} has no {form.title}: {flow}, which a trace cannot hold; --to torchscript compiles its source"
            )
        for step in form.steps(self.settings.quantize):
            adapter = discovery.load(step.framework)
            if step.builds and folder.file(adapter.reads()) is None:
                raise UsageError(
                    f"{with_article(form.title)} is made of the model in {adapter.reads()}.py, and {text} has none: write it in "
                    "a model folder, or convert to another format"
                )

    def _request(self, folder: ModelFolder) -> Request:
        """The request of a run with the same weights and inputs. Its only subject is the reference."""
        asked, checking = self.settings, self.checking
        batch = folder.spec.items
        if asked.batch is not None and asked.shape and asked.batch != batch:
            raise UsageError(f"--batch {asked.batch}: --shape gives a batch of {batch}")
        request, _ = resolve(
            folder.path,
            [f"{REFERENCE}:eager"],
            RunSettings(
                weights=asked.weights or folder.weights or OWN_WEIGHTS,
                trust=checking.trust,
                max_weights=checking.max_weights,
                memory=checking.memory,
                batch=asked.batch or batch,
                cases=asked.cases,
                seed=checking.seed,
                threads=checking.threads,
                timeout=checking.timeout,
            ),
        )
        return request

    # -- the steps ----------------------------------------------------------------------------------------------------

    def _convert(self, process: ReferenceProcess, prepared: Prepared, staged: Path) -> list[str]:
        """Do all steps. Returns a phrase about each. process: the reference, which also does the steps of its framework."""
        steps = self.target.form.steps(self.settings.quantize)
        says, made = [], None
        for index, step in enumerate(steps):
            path = staged / self.target.path.name if index == len(steps) - 1 else self._between(index)
            path.parent.mkdir(exist_ok=True)
            self.listener.phase(self.target.path.name, f"converting with {step.framework}")
            if step.framework == process.framework:
                says.append(self._step(step, process, prepared, process.worker, made, path))
            else:
                with self._worker(discovery.load(step.framework), f"{step.framework}-{index}") as worker:
                    if step.builds:
                        worker.ask(
                            build.build_question(
                                process.folder, worker.adapter.reads(), None, batch=process.request.batch
                            )
                        )
                    says.append(self._step(step, process, prepared, worker, made, path))
            made = path
        return says

    def _between(self, index: int) -> Path:
        """The file that a step makes for the next one. index: of the step."""
        return self.space / f"step-{index}" / "model.onnx"

    def _step(
        self, step: Step, process: ReferenceProcess, prepared: Prepared, worker: Worker, made: Path | None, path: Path
    ) -> str:
        """Do one step. made: the file of the step before."""
        if step.builds:
            worker.ask(messages.Load(path=str(prepared.weights)))
        keep: tuple[str, ...] = ()
        asked, wanted = self.settings.keep, self.settings.quantize
        if asked is not None and asked != AUTO and wanted is not None and not step.builds:
            layers = worker.ask(FindLayers(self.target.form.name, str(made), wanted))
            keep = named_layers(asked, layers)
        return worker.ask(self._question(step, process.folder, prepared, made, keep, path))

    def _question(
        self, step: Step, folder: ModelFolder, prepared: Prepared, made: Path | None, keep: Sequence[str], path: Path
    ) -> Convert:
        """The request for one step. made: the file of the step before. keep: the names of the layers that stay in float32."""
        spec = folder.spec
        return Convert(
            to=self.target.form.name,
            method=step.method,
            inputs=str(prepared.inputs),
            names=tuple(spec.inputs),
            outputs=tuple(spec.outputs),
            path=str(path),
            source=None if step.builds else str(made),
            quantize=self.settings.quantize,
            exporter=self.settings.exporter,
            traces=not spec.control_flow,
            keep=tuple(keep),
        )

    def _planned(self, against: checked.Against, staged: Path) -> Planned:
        """Choose the layers that stay in float32, and write the file again."""
        form, precision, label = self.target.form, self.settings.quantize or "", self.target.path.name
        steps, space = form.steps(precision), self.space / "planned"
        source, last = self._between(len(steps) - 2), steps[-1]
        space.mkdir()
        with self._worker(discovery.load(last.framework), "planner") as worker:
            layers = worker.ask(FindLayers(form.name, str(source), precision))
            question = partial(self._question, last, against.folder, against.prepared, source)
            mixing = Mixing(worker, question, source, layers, precision)
            planner = Planner(mixing, against.target(), self.checking, self.listener, label, space)
            return planner.execute(staged / label)

    def _worker(self, adapter: type[Framework], name: str) -> Worker:
        folder = self.space / name
        folder.mkdir()
        threads = self.checking.threads or host.cores()
        label = "reference" if name == "reference" else self.target.path.name
        return Worker(
            adapter,
            interpreter(adapter),
            folder,
            threads,
            "cpu",
            self.checking.timeout,
            beat=lambda seconds, line: self.listener.beat(label, seconds, line),
            memory=self.checking.memory,
        )


@contextmanager
def staged_folder(target: Target) -> Iterator[Path]:
    """An empty folder beside the target, on the same disk, which is deleted at the end: a failed conversion leaves no half file."""
    folder = Path(tempfile.mkdtemp(prefix=".xverify-", dir=target.path.absolute().parent))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
