"""Programs of ExecuTorch, ``.pte``: a flatbuffer, and then segments with weights and with what backends compute."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from xverify import reading
from xverify.errors import Failed, SubjectError, Unsupported, UsageError, first_line
from xverify.formats import _xnnpack
from xverify.formats._torch_file import TorchFile, named
from xverify.framework.filenodes import Traced
from xverify.framework.modelfile import Signature, Tensor
from xverify.framework.runner import refuse_float64
from xverify.frameworks.executorch import runtime as shared
from xverify.results.precision import Precision, from_dtypes, from_layers

HEADER = 32  # bytes from the extended header's own place, byte 8
# Numbers of ExecuTorch's scalar types -> names of dtypes.
DTYPES = {
    **dict(enumerate(("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"))),
    **{11: "bool", 15: "bfloat16", 27: "uint16", 28: "uint32", 29: "uint64"},
}
SHOWN = 6  # kinds of operators that a note names


def program(framework: Adapter, model: Opened, example: tuple[Any, ...]) -> Any:
    """Run the program with the backends that it was made for."""
    outputs, call = (
        [each.name for each in framework.signature(model).outputs],
        shared.function(model.program, model.plan.name, model.orders),
    )
    return lambda *inputs: dict(zip(outputs, call(*inputs)))


@dataclass(frozen=True)
class Opened:
    """A file that was opened.

    content: of the file. program: of the runtime. read: the same as the file has it. plan: the method of it that is called.
    """

    content: bytes
    program: Any
    read: Any
    plan: Any

    def tensor(self, name: str, place: int) -> Tensor:
        """An input or output. place: among the values of the plan. Raises Unsupported for what is no tensor."""
        value = self.plan.values[place].val
        if type(value).__name__ != "Tensor":
            raise Unsupported(f"{name} is of type {type(value).__name__}, and xverify compares tensors only")
        return Tensor(name, tuple(value.sizes), dtype_of(value))

    @property
    def orders(self) -> list[list[int]]:
        """The order of the axes of each input in memory."""
        return [self.plan.values[place].val.dim_order for place in self.plan.inputs]

    @cached_property
    def xnnpack(self) -> tuple[_xnnpack.Part, ...]:
        """What XNNPACK computes."""
        places = (each.processed.index for each in self.plan.delegates if each.id == _xnnpack.BACKEND)
        return tuple(_xnnpack.read(bytes(self.read.backend_delegate_data[place].data)) for place in places)


def operators_of(plan: Any) -> Counter[str]:
    """Operator -> how often a plan calls its kernel."""
    names = [f"{each.name}.{each.overload}" if each.overload else each.name for each in plan.operators]
    calls = (each.instr_args for chain in plan.chains for each in chain.instructions)
    return Counter(names[each.op_index] for each in calls if hasattr(each, "op_index"))


def lacks(plan: Any, operators: set[str], backends: list[str]) -> str:
    """What a plan needs that the runtime does not have, as a phrase; "" for nothing. operators, backends: of the runtime."""
    absent = sorted({each.id for each in plan.delegates} - set(backends))
    if absent:
        return f"it was made for {', '.join(absent)}, and this ExecuTorch has {', '.join(sorted(backends))}"
    missing = sorted(set(operators_of(plan)) - operators)
    return f"no kernel of this ExecuTorch computes {', '.join(missing)}" if missing else ""


def listed(counts: Counter[str]) -> str:
    """Names with their counts, the most frequent ones."""
    more = f" and {len(counts) - SHOWN} more" if len(counts) > SHOWN else ""
    return ", ".join(f"{name} ({count})" for name, count in counts.most_common(SHOWN)) + more


class Adapter(TorchFile):
    name = "pte"
    title = "ExecuTorch program (.pte)"
    runtime = "executorch"
    extra = ""
    needs = shared.NEEDS
    isolated = shared.ENVIRONMENT
    devices = ("cpu",)
    modes = {"program": program}
    implicit_mode = "program"

    def __init__(self, threads: int, device: str) -> None:
        super().__init__(threads, device)
        self.threads, self.executorch = threads, shared.runtime(threads)

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if not path.is_file():
            return False
        with reading.opened(path) as file:
            begin = file.read(8)
        return begin[4:6] == b"ET" and begin[6:].isdigit()

    @classmethod
    def check(cls, path: Path) -> None:
        with reading.opened(path) as file:
            begin = file.read(8 + HEADER)
        size = path.stat().st_size
        root = int.from_bytes(begin[:4], "little")
        needed = root + 4
        if begin[8:12] == b"eh00":
            ends = (int.from_bytes(begin[at : at + 8], "little") for at in (16, 24, 32))
            flatbuffer, base, segments = ends
            needed = max(flatbuffer, base + segments if base else 0)
        if size < needed:
            raise UsageError(f"{path.name}: this {cls.title} is truncated: it has {size} bytes of {needed}")

    def open(self, path: Path, options: Mapping[str, Any], float64: bool) -> Opened:
        from executorch.exir._serialize._program import deserialize_pte_binary

        refuse_float64(float64)
        content = path.read_bytes()
        read = deserialize_pte_binary(content).program
        plans = {each.name: each for each in read.execution_plan}
        chosen = options.get("signature") or (shared.METHOD if shared.METHOD in plans else next(iter(plans), ""))
        if chosen not in plans:
            raise Failed(f"there is no method {chosen!r}; its methods are {', '.join(plans)}")
        plan, known = plans[chosen], self.executorch
        lacking = lacks(plan, known.operator_registry.operator_names, known.backend_registry.registered_backend_names)
        if lacking:
            raise Unsupported(lacking)
        with shared.printed() as lines:
            try:
                program, failed = known.load_program(content), None
                program.load_method(chosen)
            except RuntimeError as error:
                failed = error
        if failed is not None:
            raise Failed("; ".join(lines) or first_line(failed)) from failed
        return Opened(content, program, read, plan)

    def signature(self, model: Opened) -> Signature:
        plan = model.plan
        inputs = tuple(model.tensor(f"input_{i}", place) for i, place in enumerate(plan.inputs))
        names = names_of(plan.container_meta_type.encoded_out_str, len(plan.outputs))
        outputs = tuple(model.tensor(name, place) for name, place in zip(names, plan.outputs))
        others = tuple(each.name for each in model.read.execution_plan if each.name != plan.name)
        return Signature(inputs, outputs, plan.name, others, tuple(self._notes(model)))

    def _notes(self, model: Opened) -> Iterator[str]:
        """What computes the program, and which of its inputs may be smaller."""
        for name, count in Counter(each.id for each in model.plan.delegates).items():
            nodes = Counter(kind for part in model.xnnpack for kind in part.nodes) if name == _xnnpack.BACKEND else None
            yield f"{name} computes {count} part{'s' * (count > 1)} of it" + (f": {listed(nodes)}" if nodes else "")
        operators = operators_of(model.plan)
        if operators:
            yield f"kernels compute {listed(operators)}"
        inputs = [model.plan.values[place].val for place in model.plan.inputs]
        smaller = [f"input_{i}" for i, each in enumerate(inputs) if getattr(each, "shape_dynamism", 0)]
        if smaller:
            yield f"{', '.join(smaller)}: the sizes are the largest that the file takes"

    def precision(self, model: Opened) -> Precision:
        """That of the layers of XNNPACK; without any, by the constants of the program."""
        layers = [layer for part in model.xnnpack for layer in part.layers]
        if layers:
            return from_layers(layers)
        sizes: Counter[str] = Counter()
        for each in (each.val for each in model.plan.values):
            if type(each).__name__ == "Tensor" and each.data_buffer_idx and not each.allocation_info:
                sizes[dtype_of(each)] += math.prod(each.sizes)
        kinds = {each.dtype for each in self.signature(model).outputs}
        return from_dtypes(sizes, kinds.pop() if len(kinds) == 1 and "float" in next(iter(kinds)) else "")

    def traced(self, model: Opened, inputs: Mapping[str, Any]) -> Traced:
        from xverify.formats._pte_nodes import traced

        return traced(self, model, inputs)

    def tensors(self, model: Opened) -> Mapping[str, Any]:
        raise Unsupported("the constants of a program have no names")

    def with_weights(self, model: Opened, change: Any, folder: Path) -> None:
        """None: a program is changed by no weights, which its backends have in forms of their own."""

    def random_operators(self, model: Opened) -> list[str]:
        return [name for name in operators_of(model.plan) if "rand" in name or "bernoulli" in name or "dropout" in name]

    def cause(self, error: Exception) -> tuple[type[SubjectError], str]:
        return (type(error), str(error)) if isinstance(error, SubjectError) else (Failed, first_line(error))

    def environment(self) -> dict[str, object]:
        return shared.environment(self.torch, self.threads)


def dtype_of(tensor: Any) -> str:
    """The dtype of a tensor of a plan. Raises Unsupported for one that neither numpy nor torch's bfloat16 has."""
    number = int(tensor.scalar_type)
    if number not in DTYPES:
        raise Unsupported(f"a tensor is of the type {tensor.scalar_type!r}, which xverify does not read")
    return DTYPES[number]


def names_of(tree: str, count: int) -> list[str]:
    """The names of the outputs, by the tree in which the model returns them. count: their number.

    tree: as torch writes it. Its own reader would import modules that the tree names.
    """
    try:
        places = iter(range(count))
        found = [name for name, _ in named(_grown(json.loads(tree)[1], places))]
    except (ValueError, LookupError, TypeError, StopIteration, Failed):  # a tree of another kind, or none
        found = []
    return found if len(found) == count else [f"output_{i}" for i in range(count)]


def _grown(node: Mapping[str, Any], places: Iterator[int]) -> Any:
    """A tree with the number of the output at every leaf. Containers other than mappings are tuples."""
    kind, inner = node["type"], [_grown(each, places) for each in node["children_spec"]] if node["type"] else []
    if kind is None:
        return next(places)
    return dict(zip(json.loads(node["context"]), inner)) if kind == "builtins.dict" else tuple(inner)
