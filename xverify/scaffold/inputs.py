"""The inputs of a model for which a folder is written: as the user writes them, or as its code shows them."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from .. import reading
from ..errors import SpecError, UsageError, nearest
from ..messages.outline import Example, InputsRead
from ..workload.fields import DTYPES
from ..workload.sizes import BATCH as SIZED_BATCH
from ..workload.sizes import names_in
from ..workload.spec import BATCH, TensorSpec

EXAMPLES = "example_inputs"  # the name of a function or value in the file of the model
FORM = "write NAME=SIZES[:DTYPE[:LOW:HIGH]], e.g. --input x=N,3,32,32 or --input ids=N,16:int64:0:1000"


def parse(text: str) -> tuple[str, TensorSpec]:
    """One value of ``--input``: (name, tensor). Raises UsageError."""
    name, equals, rest = text.partition("=")
    if not equals or not name.isidentifier():
        raise UsageError(f"--input {text}: {FORM}")
    return name, tensor(f"--input {text}", rest)


def tensor(place: str, text: str) -> TensorSpec:
    """The tensor that a text such as ``N,16:int64:0:1000`` describes. place: for messages. Raises UsageError."""
    sizes, *others = text.split(":")
    try:
        shape = tuple(
            int(each) if each.strip().isdecimal() else each.strip() for each in sizes.split(",") if each.strip()
        )
        low, high = (float(each) for each in others[1:]) if len(others) > 1 else (None, None)
    except ValueError:
        raise UsageError(f"{place}: {FORM}") from None
    dtype = others[0].strip() if others else "float32"
    if dtype not in DTYPES:
        raise UsageError(f"{place}: the dtype is {dtype!r}{nearest(dtype, DTYPES)} {FORM}")
    try:
        found = TensorSpec(shape, dtype, _whole(low, dtype), _whole(high, dtype))
    except SpecError as error:
        raise UsageError(f"{place}: {error}") from None
    if "float" not in dtype and low is None:
        raise UsageError(f"{place}: {dtype} needs the range of its values, e.g. {sizes}:{dtype}:0:1000")
    return found


def _whole(number: float | None, dtype: str) -> float | None:
    return int(number) if number is not None and "float" not in dtype and number == int(number) else number


def has_examples(file: Path) -> bool:
    """Whether a Python file defines example inputs. It is parsed and not imported."""
    try:
        statements = ast.parse(reading.given(file)).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False  # the worker that imports it says why
    names = {each.name for each in statements if isinstance(each, ast.FunctionDef)}
    names |= {
        target.id
        for each in statements
        if isinstance(each, ast.Assign)
        for target in each.targets
        if isinstance(target, ast.Name)
    }
    return EXAMPLES in names


def of_code(found: InputsRead, parameters: Sequence[str], source: str) -> dict[str, TensorSpec]:
    """The inputs that the code shows: its examples, else the annotations of forward. Raises UsageError where there are none.

    parameters: of forward, in order. source: what the user named.
    """
    if found.examples:
        if 0 < len(parameters) < len(found.examples) and not all(each.name for each in found.examples):
            raise UsageError(
                f"{source}: {EXAMPLES} has {len(found.examples)} tensors, and the model takes {', '.join(parameters)}"
            )
        firsts = {each.shape[0] for each in found.examples if each.shape}
        batch = firsts.pop() if len(firsts) == 1 else None
        names = parameters or [f"input_{index}" for index in range(len(found.examples))]
        return {each.name or names[index]: _of_example(each, batch) for index, each in enumerate(found.examples)}
    annotated = {name: tensor(f"{source}: the annotation of {name}", text) for name, text in found.annotated.items()}
    if annotated:
        return annotated
    names = list(parameters) or ["x"]
    raise UsageError(
        f"{source} does not say the shapes of its inputs ({', '.join(names)}): give each in the order of forward, e.g. "
        f"--input {names[0]}=N,3,32,32, or write a function {EXAMPLES}() beside it that returns tensors"
    )


def _of_example(each: Example, batch: int | None) -> TensorSpec:
    """The tensor of an example. batch: the first size of all examples; None where they differ."""
    batched = bool(each.shape) and each.shape[0] == batch
    shape: tuple[int | str, ...] = (BATCH, *each.shape[1:]) if batched else each.shape
    if each.dtype.startswith("float"):
        return TensorSpec(shape, "float32" if each.dtype == "float64" else each.dtype)
    return TensorSpec(shape, each.dtype, each.low, each.high + 1)


def with_layouts(tensors: Mapping[str, TensorSpec], images: bool) -> dict[str, TensorSpec]:
    """The same with the layout of images. images: whether the model has layers for images."""
    return {
        name: replace(each, layout="NCHW") if images and len(each.shape) == 4 and "float" in each.dtype else each
        for name, each in tensors.items()
    }


def sizes_of(tensors: Mapping[str, TensorSpec], given: Mapping[str, Sequence[int]]) -> dict[str, int]:
    """The size of each named axis of the inputs. given: --sizes.

    Raises UsageError for a name without a size, and for a size without an axis.
    """
    names = {
        name
        for each in tensors.values()
        for size in each.shape
        if isinstance(size, str) and size != BATCH
        for name in names_in(size)
    }
    for name in given:
        if name not in names and name != SIZED_BATCH:
            raise UsageError(f"--sizes {name}=...: no input has an axis {name!r}{nearest(name, [*names, SIZED_BATCH])}")
    for name in sorted(names):
        if name not in given:
            raise UsageError(f"the axis {name!r} of an input has no size: add --sizes {name}=16")
    for name, values in given.items():
        if len(values) != 1:
            raise UsageError(f"--sizes {name}={','.join(map(str, values))}: the spec has one size of an axis; give one")
    return {name: given[name][0] for name in sorted(names)}
