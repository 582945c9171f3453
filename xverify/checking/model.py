"""A reference that is no file: a model folder as ``xverify run`` takes it, or code without a spec."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from .. import host
from ..environments import store as environments
from ..errors import SubjectError, UsageError, XverifyError
from ..framework import discovery
from ..framework.adapter import Framework
from ..messages import Started
from ..messages.graph import CompareWeights
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..progress import Listener
from ..reference import summary, truth
from ..reference.build import JUDGED_ITEMS, Export, Prepared, ReferenceProcess, prepare
from ..reference.request import resolve
from ..reference.subjects import order
from ..reference.truth import Truth
from ..results.records import Error, ReferenceSummary, WeightsSummary
from ..weights import npz
from ..workload import probe
from ..workload.code import Code, parse
from ..workload.options import OWN_WEIGHTS, RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder, find_model, zoo
from .computing import Cases
from .meaning import Floors, Meaning, grown, perturbation_floors
from .model_inputs import BareSpec, batch_of, code_cases, described, folder_cases
from .options import CheckSettings
from .reference import is_recorded
from .sequence import resolve as resolve_state
from .steady import RandomReference
from .subject import Opened
from .timed import ModelSource

SHOWN = 3  # weights that a reason names
MakeCases = Callable[[], Cases]


def find(settings: CheckSettings, space: Path, listener: Listener) -> ModelReference | None:
    """The reference, when --against names a model folder, a model of the zoo, or code; None for files. Raises UsageError."""
    text = str(settings.against or "")
    try:
        code = parse(text)
        if code is None and not _is_folder(text):
            if settings.weights is not None:
                raise UsageError(
                    f"--weights {settings.weights}: it belongs to a reference that is a model folder or code, and a file has "
                    "its own weights; name such a reference with --against"
                )
            return None
        request, folder = _of_folder(text, settings) if code is None else _of_code(code, settings, space)
    except UsageError as error:
        if str(error).startswith("--weights"):
            raise
        says = str(error) if str(error).startswith(text) else f"{text}: {error}"
        raise UsageError(f"--against {says}") from None
    adapter = discovery.load(request.reference)
    place = space / "model"
    place.mkdir()
    worker = Worker(
        adapter,
        request.python.get(adapter.name, sys.executable),
        place,
        request.threads,
        "cpu",
        settings.timeout,
        patient=True,
        beat=lambda seconds, line: listener.beat("reference", seconds, line),
        memory=settings.memory,
    )
    return ModelReference(settings, ReferenceProcess(request, folder, worker, listener), code)


def _is_folder(text: str) -> bool:
    """Whether this names a model folder or a model of the zoo. A name that is neither, and no file, is meant as one."""
    path = Path(text)
    if not text or path.is_file() or is_recorded(path):
        return False
    if path.is_dir():
        files = ("spec", *discovery.files())
        return not (path / "saved_model.pb").is_file() and any((path / f"{name}.py").is_file() for name in files)
    return text in zoo() or (text.replace("-", "").isalnum() and not path.exists())


def _of_folder(text: str, settings: CheckSettings) -> tuple[Request, ModelFolder]:
    asked = RunSettings(
        weights=settings.weights,
        trust=settings.trust,
        max_weights=settings.max_weights,
        memory=settings.memory,
        seed=settings.seed,
        threads=settings.threads,
        timeout=settings.timeout,
    )
    path = Path(text)
    if text not in zoo() and path.is_dir() and not (path / "spec.py").is_file():
        files = [name for name in discovery.files() if (path / f"{name}.py").is_file()]
        raise UsageError(
            f"{text} has no spec.py, which says what the model takes: write one, or name the code alone, with "
            f"--against {files[0]}={path / files[0]}.py:build"
        )
    folder = find_model(text)
    own = [each for each in discovery.load_all().values() if not each.runs_export and folder.file(each.reads())]
    usable = [each for each in sorted(own, key=_preference) if environments.chosen(each) or not host.missing(each)]
    if not usable:
        shown = ", ".join(path.name for path in sorted(folder.code.glob("*.py")))
        raise UsageError(
            f"{text}: no framework that this folder defines is installed (it has {shown}); see xverify doctor"
        )
    return resolve(text, [usable[0].name], asked)


def _preference(adapter: type[Framework]) -> tuple[bool, int, str]:
    """The sort key of adapters: torch is first, and those that read the file of another framework are last."""
    return adapter.name != adapter.reads(), *order(adapter)


def _of_code(code: Code, settings: CheckSettings, space: Path) -> tuple[Request, ModelFolder]:
    adapter = discovery.load(code.framework)
    if adapter.runs_export:
        raise UsageError(f"{code}: {code.framework} runs exported models, and builds none from code")
    chosen = environments.chosen(adapter)
    if chosen is None and host.missing(adapter):
        raise UsageError(f"{code}: {code.framework} is not installed: {environments.remedy(adapter)}")
    place = space / "code"
    place.mkdir()
    code.write(place, adapter.reads())
    request = Request(
        model=str(place),
        subjects=(),
        reference=adapter.name,
        batch=1,
        cases=1,
        threads=settings.threads or host.cores(),
        weights=str(settings.weights or OWN_WEIGHTS),
        trust=settings.trust,
        max_weights=settings.max_weights,
        memory=settings.memory,
        seed=settings.seed,
        timeout=settings.timeout,
        python={adapter.name: interpreter(adapter)},
    )
    return request, ModelFolder(code.file.stem, place, BareSpec(inputs={}, outputs={}))


@dataclass
class ModelReference:
    """The reference of a check, with what has been found out about it.

    process: its worker, request and folder. code: None for a folder.
    problem: why it cannot be used; it is raised when its outputs are needed.
    notes: what the user should know about it.
    """

    settings: CheckSettings
    process: ReferenceProcess
    code: Code | None
    started: Started | None = None
    prepared: Prepared | None = None
    truth: Truth | None = None
    problem: XverifyError | None = None
    notes: tuple[str, ...] = ()

    @property
    def worker(self) -> Worker:
        """Its worker."""
        return self.process.worker

    def __str__(self) -> str:
        return str(self.code) if self.code else f"{self.process.folder.name} ({self.process.framework})"

    def open(self) -> None:
        """Start the worker, and build a model whose inputs are known. What fails is kept for later."""
        try:
            self.process.phase("importing")
            self.started = self.worker.start()
            if self.code is None:
                self.prepared = prepare(self.process, self.started)
        except XverifyError as error:
            self.problem = error

    def evaluate(self, opened: Opened, files: Sequence[Opened], make_cases: MakeCases) -> tuple[Cases, Meaning]:
        """The input cases, and the exact outputs with their noise. Raises UsageError.

        opened: a file under test. make_cases: makes cases for its inputs. files: all of them, of which one may fix the batch size.
        """
        try:
            if self.problem is not None:
                raise self.problem
            if self.code is None:
                cases = folder_cases(self.process.folder.spec, [each.signature for each in files], self.settings)
            else:
                assert self.started is not None
                cases, spec = code_cases(self.process, opened, make_cases(), self.settings)
                folder = replace(self.process.folder, spec=spec)
                self.process = replace(self.process, folder=folder)
                self.prepared = prepare(self.process, self.started)
            return cases, self._meaning(cases)
        except UsageError as error:
            raise (error if str(error).startswith("--") else UsageError(f"--against {self}: {error}")) from None
        except SubjectError as error:
            raise UsageError(f"--against {self}: {error}") from None

    def _meaning(self, cases: Cases) -> Meaning:
        """The exact outputs for these cases."""
        assert self.prepared is not None
        spec, space = self.process.folder.spec, self.process.space
        batch, fixed = batch_of(spec, cases.arrays), self.code is None
        request = replace(self.process.request, batch=batch, cases=cases.count)
        inputs, outputs = (described(each, batch, fixed) for each in (spec.inputs, spec.outputs))
        state = resolve_state(self.settings, inputs, outputs, str(self))
        process = replace(self.process, request=request, state=state)
        path = few = space / "cases.npz"
        npz.save_file(dict(cases.arrays), path)
        if batch > JUDGED_ITEMS:
            few = space / "few-cases.npz"
            npz.save_file(probe.first_items(cases.arrays, spec, JUDGED_ITEMS), few)
        prepared = replace(self.prepared, inputs=path, few_inputs=few)
        float32 = truth.compute_float32(process, prepared)
        found = truth.evaluate(process, prepared, float32)
        if found.inconsistent:
            raise UsageError(f"--against {self}: {found.inconsistent}")
        if found.random:
            raise RandomReference(found.random)
        self.process, self.truth = process, found
        self.notes = tuple(self._notes(prepared, found))
        says = summary.reference(request, prepared, Export(), found, ()).floor
        return Meaning(
            found.outputs,
            found.float32,
            self._floors(found),
            found.noise_floors is not None,
            found.precision,
            says,
            unmoved=found.unmoved,
        )

    def _floors(self, found: Truth) -> Floors:
        """The noise of the outputs."""
        if found.noise_floors is None:
            return perturbation_floors(found.outputs, [found.float32])
        return found.noise_floors if self.settings.steps is None else grown(found.noise_floors, found.outputs)

    def _notes(self, prepared: Prepared, found: Truth) -> list[str]:
        notes = [prepared.replaced_weights.replace("this run uses", "the reference has")]
        if found.precision_problem:
            notes.append(f"the reference is not in float64: {found.precision_problem}")
        if found.replay_problem:
            notes.append(f"the layers of the reference cannot be replayed: {found.replay_problem}")
        return [note for note in notes if note]

    def source(self) -> ModelSource:
        """What it is built from when it is timed. Its outputs are known."""
        assert self.prepared is not None
        return ModelSource(self.process.folder, self.process.request, self.prepared)

    # -- the report ---------------------------------------------------------------------------------------------------

    def summary(self) -> ReferenceSummary:
        """What the files were compared with."""
        layers = self.truth.layers if self.truth else ()
        found = summary.reference(self.process.request, self.prepared, Export(), self.truth, layers)
        source = self.prepared.weights_source if self.prepared else "unknown weights"
        return replace(found, framework=f"{self}, with {source}")

    def weights(self) -> WeightsSummary:
        """The weights of the reference."""
        return summary.weights(self.prepared)

    def explained(self, error: Error, opened: Opened, graphs: Worker | None) -> Error:
        """The error of a file that is DIFFERENT, with what is known about its weights.

        graphs: the worker that reads ONNX graphs.
        """
        says = self._about_weights(opened, graphs)
        return replace(error, reason="; ".join(filter(None, [says, error.reason])) or None)

    def _about_weights(self, opened: Opened, graphs: Worker | None) -> str:
        """A sentence about weights that differ; "" when they are known not to, or when the user named them."""
        assert self.prepared is not None
        given, source = self.settings.weights is not None, self.prepared.weights_source
        step = "give the weights the file was made from with --weights"
        perhaps = f"the reference has {source}: if the file was made from other weights, {step}"
        try:
            if not opened.is_onnx or graphs is None:
                return "" if given else perhaps
            weights = str(self.prepared.weights)
            found = graphs.ask(CompareWeights(str(opened.path.resolve()), weights))
        except SubjectError:
            return "" if given else perhaps
        sentences, count = found.sentences, len(found.sentences)
        if found.found == found.known:
            return ""
        if not given and 2 * count > found.named:
            return (
                f"{count} of {found.named} weights of the file are not those of the reference, which has {source} "
                f"({sentences[0]}): {step}"
            )
        if sentences:
            more = f"; and {count - SHOWN} more weights differ" if count > SHOWN else ""
            return "; ".join(sentences[:SHOWN]) + more
        return "" if given else perhaps
