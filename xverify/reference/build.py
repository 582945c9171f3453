"""What the reference prepares before any subject runs: files with the weights and the inputs."""

from __future__ import annotations

import math
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from .. import messages
from ..errors import Refused, UsageError, WeightsError
from ..framework import discovery
from ..messages import reference as messages_reference
from ..messages.soundness import BuildAgain
from ..messages.weights import ReadFile
from ..processes.reading import convert_weights, read_quantised
from ..processes.worker import Worker
from ..progress import Listener
from ..weights import check, digest, gguf, gguf_model, normal_form, npz
from ..weights import torch as torch_weights
from ..weights.canonical import Changed
from ..workload import probe
from ..workload.keys import only_case
from ..workload.objective import objective_of
from ..workload.options import OWN_WEIGHTS
from ..workload.request import Request
from ..workload.sizes import said
from ..workload.spec import ModelFolder
from .inputs import fewer_items, input_cases, write_shards

# Items of a batch whose layers are compared; a layer has thousands of values in each item, which is enough.
JUDGED_ITEMS = 4


@dataclass(frozen=True)
class ReferenceProcess:
    """The worker of the reference, with the request and the model folder of the run.

    state: when the input cases are the steps of a sequence: input -> the output of the step before that it is given.
    inputs: a file of input cases, of training with their labels, that takes the place of drawn ones; None: they are drawn.
    place: the folder of the files at another size than the first one; None: that of the worker.
    """

    request: Request
    folder: ModelFolder
    worker: Worker
    listener: Listener
    state: Mapping[str, str] = field(default_factory=dict)
    inputs: Path | None = None
    place: Path | None = None

    @property
    def framework(self) -> str:
        """The framework that is the reference."""
        return self.request.reference

    @property
    def space(self) -> Path:
        """The folder of the reference's files."""
        return self.place or self.worker.folder

    @property
    def replays(self) -> bool:
        """Whether this reference can judge layers. Only torch can, because its modules are the canonical layers."""
        return self.framework == "torch"

    def layers(self) -> tuple[str, ...]:
        """The canonical layers, in the order of their definition; none of a reference that cannot judge layers."""
        return self.worker.ask(messages_reference.ListLayers()) if self.replays else ()

    def phase(self, doing: str) -> None:
        """Report to the listener what the reference does."""
        self.listener.phase("reference", f"{said(self.request.sizes)}: {doing}" if self.place else doing)


@dataclass(frozen=True)
class Prepared:
    """The weights and inputs of every subject: array files and their digests.

    weights: the canonical weights. shapes: name -> shape of every weight.
    inputs: all input cases. few_inputs: the same with at most JUDGED_ITEMS items a batch, for the layers.
    training: for a training run, the input cases with their labels. few_training: the same with at most JUDGED_ITEMS items a batch.
    weights_source, inputs_kind: where the weights and the inputs come from, for the report.
    environment: versions and settings of the reference's framework.
    fused_parameters: weight that some framework of the run stores as a sum -> canonical names of the weights in this sum.
        weights_digest is then the digest of the weights with these sums.
    replaced_weights: a sentence about weights that the model file brought, and that probe weights replace; "" when there are none.
    random: why nothing can be compared with the model, because two builds or two passes of it differ; "" when they do not.
    computed: weight that the reference computes from others -> names of these others.
    computed_weights: the computed weights that some port holds instead (see folding); None where no port does.
    buffers: the weights that are no parameters, in layers of the model file.
    """

    weights: Path
    weights_digest: str
    weights_source: str
    shapes: Mapping[str, tuple[int, ...]]
    inputs: Path
    few_inputs: Path
    inputs_digest: str
    inputs_kind: str
    training: Path
    few_training: Path
    environment: Mapping[str, Any]
    fused_parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    replaced_weights: str = ""
    random: str = ""
    computed: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    computed_weights: Path | None = None
    buffers: tuple[str, ...] = ()

    def in_normal_form(self, fused_parameters: Mapping[str, tuple[str, ...]]) -> Prepared:
        """The same with the digest of the weights' normal form (see weights.normal_form)."""
        if not fused_parameters:
            return self
        arrays = normal_form(npz.OnDisk(self.weights), fused_parameters)
        return replace(self, weights_digest=digest(arrays), fused_parameters=fused_parameters)

    def sizes(self) -> tuple[int, int, int]:
        """(number of parameter tensors, their values, number of running statistics)."""
        values = {name: math.prod(shape) for name, shape in self.shapes.items()}
        statistics = {name for name in values if is_statistic(name, values)}
        total = sum(size for name, size in values.items() if name not in statistics)
        return len(values) - len(statistics), total, len(statistics)


def prepare(process: ReferenceProcess, started: messages.Started | None = None) -> Prepared:
    """Start the reference, build its model, and write the weights and inputs of every subject.

    started: the reply of the worker, when it is started already.
    Raises SubjectError when the reference cannot run, WeightsError when the given weights do not fit it.
    """
    request, space = process.request, process.space
    if started is None:
        process.phase("importing")
        started = process.worker.start()
    _check_names(process)
    process.phase("building the model")
    question = build_question(
        process.folder, process.worker.adapter.reads(), None, trains=request.trains, batch=request.batch
    )
    built = process.worker.ask(replace(question, disk=str(space)))
    shapes = {name: tuple(shape) for name, shape in built.shapes.items()}
    if request.optimizer is not None:
        request.optimizer.recipe.check_model(shapes)
    cases = write_inputs(process)
    few = cases.few_inputs
    replaced, random, constants = _build_twice(process, (first_inputs(process, few), few), len(shapes))
    weights = space / "weights.npz"
    source = _write_weights(process, shapes, weights, cases.inputs, constants)
    computed_weights = space / "computed-weights.npz" if built.computed and process.folder.folds() else None
    if computed_weights is not None:
        process.worker.ask(messages_reference.ComputeWeights(weights=str(weights), path=str(computed_weights)))
    return Prepared(
        weights=weights,
        weights_digest=digest(npz.OnDisk(weights)),
        weights_source=source,
        shapes=shapes,
        **vars(cases),
        environment=started.environment,
        replaced_weights=replaced,
        random=random,
        computed=built.computed,
        computed_weights=computed_weights,
        buffers=built.buffers,
    )


def _check_names(process: ReferenceProcess) -> None:
    """Raise UsageError where names.toml says that the reference itself stores weights otherwise."""
    folder, table = process.folder, process.worker.adapter.reads()
    for key, entries in (("stored", folder.stored(table)), ("absent", folder.absent(table))):
        if entries:
            raise UsageError(
                f"{folder.code / 'names.toml'}: [{table}] has {key}, and {table}.py is the reference of this run, with which all "
                "others are compared: write it the other way round, under the table of the other file"
            )


@dataclass(frozen=True)
class Cases:
    """What and where the input cases are: the fields of ``Prepared`` of these names."""

    inputs: Path
    few_inputs: Path
    inputs_digest: str
    inputs_kind: str
    training: Path
    few_training: Path


def write_inputs(process: ReferenceProcess) -> Cases:
    """Write the input cases."""
    space, training = process.space, process.space / "training.npz"
    inputs, kind = input_cases(process, training)
    npz.save_file(inputs, space / "inputs.npz")
    padding = _padding(process)
    if padding:
        inputs = probe.with_padding(inputs, process.folder.spec, padding)
        npz.save_file(inputs, space / "inputs.npz")
    write_shards(process, training)
    few_inputs, few_training = space / "inputs.npz", training
    if process.request.batch > JUDGED_ITEMS:
        few_inputs = space / "few-inputs.npz"
        npz.save_file(probe.first_items(inputs, process.folder.spec, JUDGED_ITEMS), few_inputs)
        if process.request.trains:
            few_training = fewer_items(process, training, JUDGED_ITEMS)
    return Cases(space / "inputs.npz", few_inputs, digest(inputs), kind, training, few_training)


def _padding(process: ReferenceProcess) -> dict[str, int]:
    """Input of ids -> the padding id of the embedding that looks them up, where the inputs are drawn for torch's model."""
    request, spec = process.request, process.folder.spec
    ids = any(each.dtype.startswith(("int", "uint")) for each in spec.inputs.values())
    if not ids or not process.replays or request.trains or process.inputs is not None:
        return {}
    path = process.space / "first-case.npz"
    npz.save_file(only_case(npz.OnDisk(process.space / "inputs.npz"), "0"), path)
    try:
        return process.worker.ask(messages_reference.WatchInputs(str(path))).padding
    except Refused:
        return {}


def first_inputs(process: ReferenceProcess, inputs: Path, items: int = 1) -> Path:
    """A file with the first items of every input case. inputs: a file of the input cases."""
    path = process.space / f"inputs-of-{items}.npz"
    if not path.exists():
        npz.save_file(probe.first_items(npz.OnDisk(inputs), process.folder.spec, items), path)
    return path


def _build_twice(process: ReferenceProcess, inputs: Sequence[Path], known: int) -> tuple[str, str, list[str]]:
    """(a sentence about weights that probe weights replace, why the model is random, the buffers that they do not replace).

    A sentence is "" when there is nothing to say. Buffers stay as ``build()`` computes them, unless the spec has ``draw_buffers``.

    inputs: files of input cases, the smallest first: what a build draws shows in every item, but a model may refuse a single one.
    known: the number of weights of the model.
    """
    for path in inputs:
        try:
            reply = process.worker.ask(BuildAgain(inputs=str(path), case=0, folder=str(process.space / "built-again")))
            break
        except Refused:
            continue
    else:  # the model cannot be built or called; later requests say so
        return "", "", []
    file = process.folder.file(process.worker.adapter.reads())
    name = file.name if file else "the model file"
    replaced = random = ""
    drawn = process.folder.spec.draw_buffers
    constants = [] if drawn else [each for each in reply.computed if not is_statistic(each, reply.computed)]
    brought = [each for each in reply.brought if each not in constants]
    if brought and process.request.weights is None:
        names = ", ".join(brought[:3]) + (", …" if len(brought) > 3 else "")
        replaced = (
            f"this run uses probe weights in place of those that {name} brings: {len(brought)} of {known} weights are "
            f"the same in two builds, as from a file or a fixed seed ({names}). Probe weights show more faults; --weights "
            f"{OWN_WEIGHTS} keeps the file's own"
        )
    if reply.place:
        random = (
            f"the reference is random: two models that build() of {name} makes first differ in {reply.place}, by "
            f"{reply.share:.2g} of the values, although they have the same weights. build() draws a constant that is no weight, "
            "or the model is random in every call; nothing can be compared until it is fixed"
        )
    elif reply.kept_place:
        random = (
            f"the reference is random: two passes of {name} on one input, with other passes in between, first differ in "
            f"{reply.kept_place}, by {reply.kept_share:.2g} of the values. The model keeps something from call to call, such as "
            "a counter or a cache; nothing can be compared until it is fixed"
        )
    return replaced, random, constants


def is_statistic(name: str, names: Collection[str]) -> bool:
    """Whether a weight is a running statistic, or a vector of a spectral norm. names: of all weights."""
    return name.rsplit(".", 1)[-1] in probe.STATISTICS or probe.is_iterated(name, names)


def _write_weights(
    process: ReferenceProcess, shapes: Mapping[str, tuple[int, ...]], path: Path, inputs: Path, constants: Sequence[str]
) -> str:
    """Write the canonical weights. Returns where they come from: a file, the model itself, or probe weights.

    constants: the buffers that probe weights do not replace.

    Here and elsewhere in this process, the weights of a model are never in memory together.
    """
    request, given = process.request, process.request.weights
    if given == OWN_WEIGHTS:
        process.worker.ask(messages.Save(path=str(path)))
        source = f"the weights that build() of {process.framework} makes"
        check(npz.OnDisk(path), shapes, source=source)
        return source
    if given is not None:
        process.phase(f"reading {given}")
        check(_read_file(process, Path(given), path), shapes, source=given)
        return given
    constants = [name for name in shapes if name in constants or _is_absent(process, name)]
    _draw_weights(process, shapes, path, constants)
    if any(is_statistic(name, shapes) for name in shapes):
        process.phase("calibrating running statistics")
        calibrated = path.with_name("calibrated-weights.npz")
        process.worker.ask(messages.Load(path=str(path)))
        process.worker.ask(
            messages_reference.Calibrate(str(inputs), request.batch if process.folder.spec.batch else None)
        )
        process.worker.ask(messages.Save(path=str(calibrated)))
        npz.save_file(probe.unsettle(npz.OnDisk(calibrated), request.seed), path)
        calibrated.unlink()
    kept = f"; as build() computes them: {', '.join(constants[:3])}{', …' * (len(constants) > 3)}" if constants else ""
    return f"probe weights, seed {request.seed}{kept}"


def _is_absent(process: ReferenceProcess, name: str) -> bool:
    """Whether some port has no place for this weight, because it computes the value itself."""
    return any(f"{name}.".startswith(f"{entry}.") for entry in process.folder.all_absent())


def _draw_weights(
    process: ReferenceProcess, shapes: Mapping[str, tuple[int, ...]], path: Path, constants: Sequence[str]
) -> None:
    """Write probe weights, and the constants as ``build()`` computes them."""
    drawn = probe.Weights(shapes, process.request.seed)
    if not constants:
        npz.save_file(drawn, path)
        return
    own = path.with_name("own-weights.npz")
    process.worker.ask(messages.Save(path=str(own)))
    made = npz.OnDisk(own)
    kept = {name: (tuple(shapes[name]), partial(made.__getitem__, name)) for name in constants}
    npz.save_file(Changed(drawn, {name: name for name in shapes if name not in kept}, kept), path)
    own.unlink()


def _read_file(process: ReferenceProcess, path: Path, target: Path) -> npz.OnDisk:
    """Write the canonical arrays of a weight file, which is never read in this process, to an array file, and return them."""
    trust, most = process.request.trust, process.request.max_weights
    if path.suffix in gguf.SUFFIXES:
        stored = read_quantised(path, target.with_name("stored-weights.npz"), most)
        npz.save_file(gguf_model.hugging_face(stored.arrays, stored.facts), target)
        return npz.OnDisk(target)
    if path.suffix not in torch_weights.SUFFIXES or process.framework != "torch":
        return convert_weights(path, target, trust, most)
    # torch is imported in this worker already
    reply = process.worker.ask(ReadFile(str(path.resolve()), str(target), trust, most))
    if reply.refused:
        raise WeightsError(reply.refused)
    return npz.OnDisk(target)


def build_question(
    folder: ModelFolder,
    file: str,
    onnx: Path | None,
    mode: str | None = None,
    trains: bool = False,
    batch: int | None = None,
) -> messages.Build:
    """The request to a worker to build the model of this folder.

    file: what names the model file there, such as ``torch`` (see Runner.reads).
    onnx: the reference's export. mode: the mode of the subject. trains: whether the model will be trained, with the loss of its
    folder. batch: of the run; None: that of the spec. Raises Unsupported where the model files do not agree on the loss.
    """
    place = folder.place(file)
    return messages.Build(
        folder=str(place.parent),
        file=place.stem,
        table=file,
        function=folder.function(file),
        project=str(Path.cwd()) if file in folder.ports else "",
        options=dict(folder.spec.options),
        onnx=str(onnx) if onnx else None,
        names=folder.names(file),
        inputs={name: tensor.layout for name, tensor in folder.spec.inputs.items()},
        outputs={name: tensor.layout for name, tensor in folder.spec.outputs.items()},
        mode=mode,
        objective=objective_of(folder, file) if trains else None,
        scalars=tuple(name for name, tensor in folder.spec.outputs.items() if not tensor.shape),
        sizes={
            name: messages.InputSize(tensor.sized(batch or folder.spec.items), tensor.dtype)
            for name, tensor in folder.spec.inputs.items()
        },
    )


def reference_workers(request: Request, space: Path, names: Iterable[str]) -> list[Worker]:
    """Make workers of torch on the CPU, each with its own folder in ``space``. They are not started."""
    torch = discovery.load("torch")
    python = request.python.get("torch", sys.executable)
    workers = []
    for name in names:
        (space / name).mkdir()
        place = space / name
        workers.append(Worker(torch, python, place, request.threads, "cpu", request.timeout, memory=request.memory))
    return workers
