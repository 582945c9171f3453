"""Writes a model folder: calls the reference once in a worker, and writes the spec, the reference and first ports."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import host, messages, writing
from ..conversion.source import named
from ..errors import SubjectError, UsageError, nearest
from ..framework import discovery
from ..framework.adapter import Framework
from ..framework.outline import Outlined
from ..messages.outline import Outline, ReadInputs
from ..messages.reference import Evaluate, ReadParameters
from ..processes.command import interpreter
from ..processes.space import temporary_folder
from ..processes.worker import Worker
from ..progress import Listener
from ..weights import npz
from ..workload import probe
from ..workload.code import WRITE, Code
from ..workload.code import parse as parse_code
from ..workload.sizes import Size, value
from ..workload.spec import BATCH, ModelSpec, TensorSpec
from . import inputs, keras
from .options import InitSettings

TORCH = "torch"
KERAS = "tensorflow"  # the model file that the adapters of Keras read
BATCHES = (2, 3)  # batch sizes of the calls that show which axes of the outputs are the batch
IMAGES = ("Conv2d", "ConvTranspose2d", "MaxPool2d", "AvgPool2d", "AdaptiveAvgPool2d", "BatchNorm2d")
UNKNOWN = TensorSpec((1,))  # in the place of the outputs, before they are known
SIZES = 64  # largest divisor or factor that the size of an output is tried with


@dataclass(frozen=True)
class Begun:
    """What was written. files: in order. missing: file -> what is still to be written in it."""

    folder: Path
    files: tuple[Path, ...]
    missing: Mapping[str, str]
    notes: tuple[str, ...] = ()


def begin(folder: Path, asked: InitSettings, listener: Listener) -> Begun:
    """Write a model folder. Raises UsageError, and SubjectError where the model cannot be built or called."""
    if folder.exists() or folder.is_symlink():
        raise UsageError(f"{folder}: it exists; name a new folder, or remove it")
    if not folder.absolute().parent.is_dir():
        raise UsageError(f"{folder}: there is no folder {folder.absolute().parent} to write it in")
    code = _code(asked.from_)
    ports = _ports(asked.port)
    with temporary_folder() as space:
        read = _read(code, asked, space, listener)
    text = spec_text(read.spec, code)
    files = {"spec.py": text, "torch.py": reference_text(folder, code)}
    missing = {}
    for name in ports:
        files[f"{name}.py"], missing[f"{name}.py"] = _port(name, read, str(code))
    folder.mkdir()
    for name, content in files.items():
        writing.write_text(content, folder / name)
    return Begun(folder, tuple(folder / name for name in files), {k: v for k, v in missing.items() if v}, read.notes)


def _code(source: str | None) -> Code:
    if source is None:
        raise UsageError(f"--from is missing: name the model in torch; {WRITE}")
    code = parse_code(source)
    if code is None:
        raise UsageError(f"--from {source}: {WRITE}")
    if code.framework != TORCH:
        raise UsageError(f"--from {source}: the reference is in torch; write torch=FILE.py:NAME")
    return code


def _ports(names: Sequence[str]) -> list[str]:
    """The model files of the ports. Raises UsageError for a framework that is unknown, or that reads none of its own."""
    known = [name for name in discovery.files() if _reads(name)]
    files = []
    for name in names:
        if name not in known:
            raise UsageError(
                f"--port {name}: no framework of that name has a model file{nearest(name, known)} Known: {', '.join(known)}"
            )
        files.append(_reads(name))
    return list(dict.fromkeys(files))


def _reads(name: str) -> str:
    """The model file of a framework, without .py; "" for the reference's own, and for one that runs its export."""
    adapter: type[Framework] = discovery.load(name)
    return "" if adapter.runs_export or adapter.reads() == TORCH else adapter.reads()


@dataclass(frozen=True)
class Read:
    """What the worker found out about the reference."""

    spec: ModelSpec
    outlined: Outlined
    notes: tuple[str, ...]


def _read(code: Code, asked: InitSettings, space: Path, listener: Listener) -> Read:
    """Build and call the reference."""
    model, place = space / "model", space / "worker"
    model.mkdir()
    place.mkdir()
    code.write(model, TORCH)
    torch = discovery.load(TORCH)
    listener.phase("reference", f"building and calling {code.name} of {code.file.name}")
    with Worker(torch, interpreter(torch), place, asked.threads or host.cores(), "cpu", timeout=600.0) as worker:
        worker.ask(messages.Build(str(model), {}, None, {}, {}, {}))
        found = _inputs(worker, code, asked)
        sizes = inputs.sizes_of(found, asked.sizes or {})
        batch = ((asked.sizes or {}).get("batch") or (8,))[0]
        calls = Calls(worker, code, found, sizes)
        outputs, notes = calls.outputs()
        outlined = worker.ask(Outline(str(calls.write({"batch": BATCHES[0], **sizes}))))
        images = any(step.kind in IMAGES for step in outlined.steps)
        taken, given = (inputs.with_layouts(each, images) for each in (found, outputs))
        return Read(ModelSpec(taken, given, batch=batch, sizes=sizes), outlined, notes)


def _inputs(worker: Worker, code: Code, asked: InitSettings) -> dict[str, TensorSpec]:
    """The inputs of the model: those of --input, else of the code."""
    parameters = worker.ask(ReadParameters())
    names = (*parameters.needed, *parameters.optional)
    if asked.input:
        if not parameters.others and not len(parameters.needed) <= len(asked.input) <= len(names):
            raise UsageError(
                f"--input names {', '.join(asked.input)}, and {code.name} of {code.file.name} takes {', '.join(names) or 'nothing'}"
            )
        return dict(asked.input)
    name = inputs.EXAMPLES if inputs.has_examples(code.file) else ""
    found = worker.ask(ReadInputs(str(code.file), name, str(Path.cwd())))
    tensors = inputs.of_code(found, names, str(code))
    for each in tensors:
        if not each.isidentifier():
            raise UsageError(f"{code}: {inputs.EXAMPLES} has the name {each!r}; name the arguments of forward")
    return tensors


@dataclass(frozen=True)
class Calls:
    """Calls of the reference at several sizes, which show how its outputs depend on them."""

    worker: Worker
    code: Code
    inputs: Mapping[str, TensorSpec]
    sizes: Mapping[str, int]

    def write(self, size: Size) -> Path:
        """A file of drawn inputs at a size."""
        own = {name: each for name, each in size.items() if name != "batch"}
        path = self.worker.folder / f"inputs-{'-'.join(map(str, size.values()))}.npz"
        spec = ModelSpec(dict(self.inputs), {"output": UNKNOWN}, sizes=own)
        npz.save_file(probe.inputs(spec, size["batch"], 0, 1), path)
        return path

    def shapes(self, size: Size) -> dict[str, tuple[tuple[int, ...], str]]:
        """Name -> (shape, dtype) of every output at a size."""
        weights, outputs = (self.worker.folder / f"{name}.npz" for name in ("weights", "outputs"))
        self.worker.ask(messages.reference.NameTensors(dict.fromkeys(self.inputs), {}))
        self.worker.ask(messages.Save(str(weights)))
        try:
            self.worker.ask(Evaluate(str(self.write(size)), str(outputs), str(weights), float64=False))
        except SubjectError as error:
            given = ", ".join(f"{name} {each.shape}" for name, each in self.inputs.items())
            raise type(error)(f"{self.code} cannot be called with {given} at {size}: {error}") from None
        return named(npz.load_file(outputs))

    def outputs(self) -> tuple[dict[str, TensorSpec], tuple[str, ...]]:
        """The outputs with the names of their axes, and notes on axes whose sizes are not understood."""
        first = {"batch": BATCHES[0], **self.sizes}
        other = {"batch": BATCHES[1], **{name: 2 * each + 1 for name, each in self.sizes.items()}}
        before = self.shapes(first)
        changed = {name: self.shapes({**first, name: other[name]}) for name in first}
        notes: list[str] = []
        found = {}
        for name, (shape, dtype) in before.items():
            sizes = [
                _axis(size, {key: (first, other[key], each[name][0][axis]) for key, each in changed.items()})
                for axis, size in enumerate(shape)
            ]
            notes += [
                f"axis {axis} of the output {name} changes with the sizes of the inputs: write how into spec.py"
                for axis, size in enumerate(sizes)
                if size is None
            ]
            found[name] = TensorSpec(tuple(own if size is None else size for size, own in zip(sizes, shape)), dtype)
        return found, tuple(notes)


def _axis(size: int, changed: Mapping[str, tuple[Size, int, int]]) -> int | str | None:
    """How the size of an axis of an output is written; None where it is not understood.

    changed: name -> (the first sizes, another size of this name, the size of the axis then).
    """
    moved = [name for name, (_, _, then) in changed.items() if then != size]
    if not moved:
        return size
    [name, *others] = moved
    first, other, then = changed[name]
    if name == "batch":
        return BATCH if not others and (size, then) == (first[name], other) else None
    fitting = (each for each in _expressions(name) if (value(each, first), value(each, {name: other})) == (size, then))
    return next(fitting, None) if not others else None


def _expressions(name: str) -> Iterator[str]:
    """What the size of an axis may be, the simplest first."""
    yield name
    for number in range(1, SIZES):
        yield from (f"{name} + {number}", f"{name} - {number}")
    for number in range(2, SIZES):
        yield from (f"{number} * {name}", f"{name} // {number}", f"({name} - 1) // {number} + 1")


def _port(name: str, read: Read, reference: str) -> tuple[str, str]:
    """(text, what is missing) of the port in a model file."""
    if name == KERAS:
        return keras.source(read.outlined, read.spec.declared["inputs"], reference)
    return keras.unwritten(read.outlined, reference, f"xverify init writes complete ports for {KERAS} alone")


def reference_text(folder: Path, code: Code) -> str:
    """The text of torch.py: it imports the user's file, by its place beside the folder."""
    place, project = (Path(os.path.relpath(each, folder.absolute())).as_posix() for each in (code.file, Path.cwd()))
    return "\n".join(
        (
            f'"""The reference: {code.name} of {code.file.name}."""',
            "",
            "from pathlib import Path",
            "",
            "from xverify.workload.code import make",
            "",
            "HERE = Path(__file__).resolve().parent",
            "",
            "",
            "def build():",
            f"    return make(str(HERE / {json.dumps(place)}), {json.dumps(code.name)}, str(HERE / {json.dumps(project)}))",
            "",
        )
    )


def spec_text(spec: ModelSpec, code: Code) -> str:
    """The text of spec.py."""
    lines = [
        f'"""The inputs and outputs of {code}."""',
        "",
        "from xverify import ModelSpec, TensorSpec",
        "",
        "SPEC = ModelSpec(",
    ]
    for what in ("inputs", "outputs"):
        lines.append(f"    {what}={{")
        lines += [f'        "{name}": {_tensor(each)},' for name, each in spec.declared[what].items()]
        lines.append("    },")
    if spec.sizes:
        lines.append(f"    sizes={dict(spec.sizes)!r},")
    return "\n".join([*lines, f"    batch={spec.batch},", ")", ""])


def _tensor(tensor: TensorSpec) -> str:
    parts = [repr(tensor.shape).replace("'", '"')]
    if tensor.dtype != "float32":
        parts.append(f'"{tensor.dtype}"')
    parts += [
        f"{name}={_number(getattr(tensor, name))}" for name in ("low", "high") if getattr(tensor, name) is not None
    ]
    if tensor.layout:
        parts.append(f'layout="{tensor.layout}"')
    return f"TensorSpec({', '.join(parts)})"


def _number(number: float) -> str:
    return repr(int(number)) if number == int(number) else repr(number)
