"""A reference that is no file: a model folder as ``xverify run`` takes it, or code without a spec."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from .. import host
from ..environments import store as environments
from ..errors import Absent, SubjectError, UsageError
from ..framework import discovery
from ..framework.adapter import Framework
from ..framework.filenodes import FileGraph, FileNode
from ..messages import Capture, Load, Started
from ..messages.files import NodesTraced
from ..messages.graph import CompareWeights
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..reference import summary, truth
from ..reference.build import JUDGED_ITEMS, Prepared, ReferenceProcess, prepare
from ..reference.request import resolve
from ..reference.subjects import order
from ..reference.truth import Truth
from ..weights import npz
from ..workload import probe
from ..workload.code import Code, parse
from ..workload.options import OWN_WEIGHTS, PROBE_WEIGHTS, RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder, find_model, zoo
from .candidate import Context, Known, ModelSource, ReferenceFailed, Target, Tools
from .computing import Cases
from .meaning import Floors, Meaning, grown, perturbation_floors
from .model_inputs import BareSpec, batch_of, code_cases, described, folder_cases
from .options import CheckSettings
from .reference import is_recorded
from .sequence import resolve as resolve_state
from .subject import File, Opened

SHOWN = 3  # weights that a reason names


def find(context: Context) -> ModelReference | None:
    """The reference, when --against names a model folder, a model of the zoo, or code; None for files. Raises UsageError."""
    settings, space, listener = context.settings, context.space, context.listener
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
    return ModelReference(context, ReferenceProcess(request, folder, worker, listener), code)


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


def _preference(adapter: type[Framework]) -> tuple[bool, int, str, str]:
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
        weights=None if settings.weights == PROBE_WEIGHTS else str(settings.weights or OWN_WEIGHTS),
        trust=settings.trust,
        max_weights=settings.max_weights,
        memory=settings.memory,
        seed=settings.seed,
        timeout=settings.timeout,
        python={adapter.name: interpreter(adapter)},
    )
    return request, ModelFolder(code.file.stem, place, BareSpec(inputs={}, outputs={}))


@dataclass(frozen=True)
class ModelReference:
    """A reference that is a model. process: its worker, request and folder. code: None for a folder."""

    context: Context
    process: ReferenceProcess
    code: Code | None
    files: tuple[File, ...] = ()

    @property
    def workers(self) -> tuple[Worker, ...]:
        """Return the process of the reference."""
        return (self.process.worker,)

    def __str__(self) -> str:
        return str(self.code) if self.code else f"{self.process.folder.name} ({self.process.framework})"

    def open(self) -> Prepared | Started:
        """Start the worker, and build a model whose inputs are known: that of a folder. Raises XverifyError."""
        self.process.phase("importing")
        started = self.process.worker.start()
        return prepare(self.process, started) if self.code is None else started

    def known(self, ready: Future[Prepared | Started], files: Sequence[Opened], tools: Tools) -> Known:
        """The exact outputs with their noise.

        ready: what ``open`` returned. files: those under test that could be opened; one of them may fix the batch size.
        Raises UsageError.
        """
        if not files:
            prepared = None if ready.exception() else ready.result()
            return self._told(None, self.process, prepared if isinstance(prepared, Prepared) else None, None)
        try:
            return self._evaluated(ready.result(), files, tools)
        except UsageError as error:
            raise (error if str(error).startswith("--") else UsageError(f"--against {self}: {error}")) from None
        except SubjectError as error:
            raise ReferenceFailed(f"--against {self}: {error}") from None

    def _evaluated(self, ready: Prepared | Started, files: Sequence[Opened], tools: Tools) -> Known:
        settings, process = self.context.settings, self.process
        if isinstance(ready, Prepared):
            prepared = ready
            cases = folder_cases(process.folder.spec, [each.signature for each in files], settings)
        else:
            cases, spec = code_cases(process, files[0], tools.guess(files[0])[0], settings)
            process = replace(process, folder=replace(process.folder, spec=spec))
            prepared = prepare(process, ready)
        asked, paths = self._for_cases(process, cases)
        few = replace(prepared, inputs=paths[0], few_inputs=paths[1])
        exact = truth.evaluate(asked, few, truth.compute_float32(asked, few))
        if exact.inconsistent:
            raise UsageError(f"--against {self}: {exact.inconsistent}")
        if exact.random:
            return self._told(Absent(exact.random), process, prepared, None)
        says = summary.reference(asked.request, few, None, exact, ()).floor
        modelled = exact.noise_floors is not None
        meaning = Meaning(
            exact.outputs,
            exact.float32,
            self._floors(exact),
            modelled,
            exact.precision,
            says,
            unmoved=exact.unmoved,
            unreached=exact.unreached,
        )
        source = ModelSource(asked.folder, asked.request, prepared)
        about = partial(_about_weights, prepared, settings.weights is not None, tools.graphs)
        calls = partial(_calls, process.worker, prepared, paths[0])
        target = Target(cases, meaning, source=source, about_weights=about, calls=calls)
        return replace(
            self._told(target, asked, prepared, exact), notes=tuple(_notes(prepared, exact, self.context.settings))
        )

    def _for_cases(self, process: ReferenceProcess, cases: Cases) -> tuple[ReferenceProcess, tuple[Path, Path]]:
        """The process with a request for these cases, and the files of the cases and of their first items."""
        spec, space = process.folder.spec, process.space
        batch, fixed = batch_of(spec, cases.arrays), self.code is None
        request = replace(process.request, batch=batch, cases=cases.count)
        inputs, outputs = (described(each, batch, fixed) for each in (spec.inputs, spec.outputs))
        state = resolve_state(self.context.settings, inputs, outputs, str(self))
        path = few = space / "cases.npz"
        npz.save_file(dict(cases.arrays), path)
        if batch > JUDGED_ITEMS:
            few = space / "few-cases.npz"
            npz.save_file(probe.first_items(cases.arrays, spec, JUDGED_ITEMS), few)
        return replace(process, request=request, state=state), (path, few)

    def _floors(self, found: Truth) -> Floors:
        """The noise of the outputs."""
        if found.noise_floors is None:
            return perturbation_floors(found.outputs, [found.float32])
        return found.noise_floors if self.context.settings.steps is None else grown(found.noise_floors, found.outputs)

    def _told(
        self, target: Target | Absent | None, process: ReferenceProcess, prepared: Prepared | None, found: Truth | None
    ) -> Known:
        """The reference as a result tells it, as far as it is known."""
        told = summary.reference(process.request, prepared, None, found, found.layers if found else ())
        source = prepared.weights_source if prepared else "unknown weights"
        return Known(target, replace(told, framework=f"{self}, with {source}"), summary.weights(prepared))


def _notes(prepared: Prepared, found: Truth, settings: CheckSettings) -> Iterator[str]:
    """What the user should know about the reference."""
    replaced = prepared.replaced_weights.replace("this run uses", "the reference has")
    if replaced and settings.weights != PROBE_WEIGHTS:
        yield replaced
    if found.precision_problem:
        yield f"the reference is not in float64: {found.precision_problem}"
    if found.replay_problem:
        yield f"the layers of the reference cannot be replayed: {found.replay_problem}"


def _calls(worker: Worker, prepared: Prepared, inputs: Path, case: int, folder: Path) -> NodesTraced:
    """The calls of the layers in one case, as the nodes of a file. Calls that share a value have the name of one array.

    inputs: the array file of the cases. folder: gets the arrays.
    """
    worker.ask(Load(str(prepared.weights), prepared.buffers))
    reply = worker.ask(Capture(str(inputs), case, str(folder), None))
    nodes = [FileNode(call.name, reply.kinds[call.name], call.inputs, call.outputs) for call in reply.records]
    made = {name for node in nodes for name in node.outputs}
    given = dict.fromkeys(name for node in nodes for name in node.inputs if name not in made)
    files = {name: name for name in (*made, *given)}
    outputs = npz.load_file(folder / "outputs.npz")
    for key, array in outputs.items():
        name = key.partition("/")[2]
        files[name] = f"output-{len(files)}.npy"
        np.save(folder / files[name], array, allow_pickle=False)
    return NodesTraced(FileGraph(tuple(nodes), tuple(given), tuple(each.partition("/")[2] for each in outputs)), files)


def _about_weights(prepared: Prepared, given: bool, graphs: Worker | None, opened: Opened) -> str:
    """A sentence about weights that differ; "" when they are known not to, or when the user named them.

    given: whether the user named them. graphs: the worker that reads ONNX graphs.
    """
    source, step = prepared.weights_source, "give the weights the file was made from with --weights"
    perhaps = "" if given else f"the reference has {source}: if the file was made from other weights, {step}"
    if not opened.is_onnx or graphs is None:
        return perhaps
    try:
        reply = graphs.ask(CompareWeights(str(opened.path.resolve()), str(prepared.weights)))
    except SubjectError:
        return perhaps
    sentences, count = reply.sentences, len(reply.sentences)
    if reply.found == reply.known:
        return ""
    if not given and 2 * count > reply.named:
        return (
            f"{count} of {reply.named} weights of the file are not those of the reference, which has {source} "
            f"({sentences[0]}): {step}"
        )
    if sentences:
        more = f"; and {count - SHOWN} more weights differ" if count > SHOWN else ""
        return "; ".join(sentences[:SHOWN]) + more
    return perhaps
