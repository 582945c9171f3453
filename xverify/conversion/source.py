"""The model that is converted: a model folder, or a function in a Python file that makes a torch module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from .. import host, messages
from ..errors import SubjectError, UsageError, nearest
from ..framework import discovery
from ..messages.reference import Evaluate
from ..processes.command import interpreter
from ..processes.worker import Worker
from ..progress import Listener
from ..weights import npz
from ..weights.canonical import Array
from ..workload.code import parse
from ..workload.keys import case_key
from ..workload.spec import BATCH, ModelFolder, find_model, load_folder

Shapes = Mapping[str, tuple[int, ...]]
TORCH = "torch"
UNNAMED = "output"


def find(text: str, shapes: Shapes, space: Path, threads: int | None, listener: Listener) -> ModelFolder:
    """The model folder of a source. Raises UsageError, and SubjectError when the model of a Python file cannot be called.

    text: a model of the zoo, a folder, or torch=FILE.py:FUNCTION. shapes: --shape. space: an empty folder.
    """
    code = parse(text)
    if code is None:
        return _with_shapes(find_model(text), shapes)
    if code.framework != TORCH:
        raise UsageError(f"{text}: code to convert is in torch; a model folder may have models of other frameworks")
    if not shapes:
        raise UsageError(
            f"{text}: give the shape of every input, in the order of forward, e.g. --shape x=1x3x224x224. Inputs that are not "
            "float32 need a model folder, whose spec.py says their dtype"
        )
    space.mkdir()
    code.write(space, TORCH)
    listener.phase("reference", f"calling {code.name} of {code.file.name}")
    outputs = _outputs(space, shapes, threads, text)
    _write_spec(space, shapes, outputs)
    return replace(load_folder(space), name=code.file.stem)


def _outputs(space: Path, shapes: Shapes, threads: int | None, text: str) -> dict[str, tuple[tuple[int, ...], str]]:
    """Name -> (shape, dtype) of every output of the model, which is called once."""
    place = space / "worker"
    place.mkdir()
    torch = discovery.load(TORCH)
    inputs, weights, found = (place / f"{name}.npz" for name in ("inputs", "weights", "outputs"))
    random = np.random.default_rng(0)
    npz.save_file(
        {case_key(0, name): random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}, inputs
    )
    try:
        with Worker(torch, interpreter(torch), place, threads or host.cores(), "cpu", timeout=600.0) as worker:
            worker.ask(messages.Build(str(space), {}, None, {}, dict.fromkeys(shapes), {}))
            worker.ask(messages.Save(str(weights)))
            worker.ask(Evaluate(inputs=str(inputs), path=str(found), weights=str(weights), float64=False))
    except SubjectError as error:
        given = ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in shapes.items())
        raise type(error)(f"{text} cannot be called with float32 inputs {given}: {error}") from None
    return named(npz.load_file(found))


def named(arrays: Mapping[str, Array]) -> dict[str, tuple[tuple[int, ...], str]]:
    """Return the shape and dtype of each output by its name. Outputs without names are called output, or output_0, output_1."""
    names = [key.partition("/")[2] for key in arrays]
    if not any(name.startswith(f"{UNNAMED}[") for name in names):
        called = names
    else:
        called = [UNNAMED] if len(names) == 1 else [f"{UNNAMED}_{i}" for i in range(len(names))]
    return {name: (array.shape, array.dtype.name) for name, array in zip(called, arrays.values())}


def _write_spec(space: Path, shapes: Shapes, outputs: Mapping[str, tuple[tuple[int, ...], str]]) -> None:
    """Write the spec.py of a model that has none. Its batch size is the first size of the first input."""
    batch = next((shape[0] for shape in shapes.values() if shape), 1)

    def tensor(shape: tuple[int, ...], dtype: str) -> str:
        # A scalar, or an array with another first size, has no batch axis.
        sizes = (BATCH, *shape[1:]) if shape and shape[0] == batch else shape
        return f"TensorSpec({sizes!r}, {dtype!r})"

    inputs = ", ".join(f"{name!r}: {tensor(shape, 'float32')}" for name, shape in shapes.items())
    results = ", ".join(f"{name!r}: {tensor(shape, dtype)}" for name, (shape, dtype) in outputs.items())
    (space / "spec.py").write_text(
        "from xverify import ModelSpec, TensorSpec\n\n"
        f"SPEC = ModelSpec(batch={batch}, inputs={{{inputs}}}, outputs={{{results}}})\n"
    )


def _with_shapes(folder: ModelFolder, shapes: Shapes) -> ModelFolder:
    """The folder with these shapes of its inputs."""
    spec = folder.spec
    inputs, batches = dict(spec.inputs), set[int]()
    for name, shape in shapes.items():
        if name not in inputs:
            raise UsageError(
                f"--shape {name}=...: no input is called {name!r}{nearest(name, inputs)} Inputs: {', '.join(inputs)}"
            )
        known = inputs[name]
        if len(shape) != len(known.shape):
            raise UsageError(f"--shape {name}={'x'.join(map(str, shape))}: spec.py says {known.shape}")
        sizes = tuple(BATCH if own == BATCH else size for own, size in zip(known.shape, shape))
        batches |= {size for own, size in zip(known.shape, shape) if own == BATCH}
        inputs[name] = replace(known, shape=sizes)
    if len(batches) > 1:
        raise UsageError(f"--shape gives the batch axis the sizes {' and '.join(map(str, sorted(batches)))}")
    return replace(folder, spec=replace(spec, inputs=inputs, batch=next(iter(batches), spec.batch)))
