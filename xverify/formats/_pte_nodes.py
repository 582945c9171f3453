"""The nodes of a program of ExecuTorch, with the values that its event tracer records. What a backend computes is one node."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from xverify.errors import Unsupported
from xverify.formats._xnnpack import BACKEND
from xverify.framework.adapter import Array
from xverify.framework.filenodes import FileGraph, FileNode, Traced, settings

if TYPE_CHECKING:
    from xverify.formats.pte import Adapter, Opened

CALLS = ("OPERATOR_CALL", "DELEGATE_CALL")  # the events that have the values of an instruction
SPARE = 2**20  # bytes that the event tracer gets beside those of all values
WIDEST = 8  # bytes of a number
VIEW = "view"
LISTS = ("TensorList", "OptionalTensorList")


@dataclass(frozen=True)
class Call:
    """An instruction, or a view.

    number: its place in the program; -1 for a view, which is no instruction. settings: the numbers that it is given.
    inputs, outputs: places of tensors among the values of the plan.
    """

    number: int
    kind: str
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    settings: dict[str, str]


def traced(framework: Adapter, model: Opened, inputs: Mapping[str, Any]) -> Traced:
    """Compute one case with the event tracer, and return all nodes with all values. Raises Unsupported for a branch."""
    plan, signature = model.plan, framework.signature(model)
    names = dict(zip(plan.outputs, (each.name for each in signature.outputs)))
    names |= dict(zip(plan.inputs, (each.name for each in signature.inputs)))

    def named(places: Sequence[int]) -> tuple[str, ...]:
        return tuple(names.get(place, f"value_{place}") for place in places)

    calls = list(_calls(framework.torch, model))
    found = {**_constants(model), **_recorded(framework, model, calls, inputs)}
    for each in calls:
        if each.kind == VIEW and each.inputs[0] in found:
            found[each.outputs[0]] = found[each.inputs[0]].reshape(plan.values[each.outputs[0]].val.sizes)
    values = {named([place])[0]: array for place, array in found.items()}
    values |= {name: framework.to_numpy(tensor, None) for name, tensor in inputs.items()}
    nodes = tuple(
        FileNode(
            f"{each.kind}_{each.number}" if each.number >= 0 else f"{VIEW} of {named(each.inputs)[0]}",
            each.kind,
            named(each.inputs),
            named(each.outputs),
            each.settings,
        )
        for each in calls
    )
    return Traced(FileGraph(nodes, named(plan.inputs), named(plan.outputs)), values)


def _calls(torch: Any, model: Opened) -> Iterator[Call]:
    """The instructions of a program, and the views between them, which are none: they have the memory of another value."""
    plan = model.plan
    if any(list(each.val.dim_order) != sorted(each.val.dim_order) for each in plan.values if _is_tensor(each.val)):
        raise Unsupported("the nodes of a program whose values have their channels last in memory are not shown")
    known = set(plan.inputs) | {place for place, each in enumerate(plan.values) if _is_constant(each.val)}
    memory: dict[tuple[int, int], int] = {_memory(plan, place): place for place in plan.inputs}
    parts = iter(model.xnnpack)
    for number, instruction in enumerate(each for chain in plan.chains for each in chain.instructions):
        call, told = instruction.instr_args, {}
        if not hasattr(call, "args"):
            raise Unsupported("the nodes of a program with branches are not shown")
        if hasattr(call, "op_index"):
            operator = plan.operators[call.op_index]
            kind, arguments = operator.name.rpartition("::")[2], _arguments(torch, operator)
            written = [
                place for each, place in zip(arguments, call.args) if each.alias_info and each.alias_info.is_write
            ]
            told = settings((each.name, _number(plan, place)) for each, place in zip(arguments, call.args))
        else:
            kind = plan.delegates[call.delegate_index].id
            written = call.args[-next(parts).outputs :] if kind == BACKEND else call.args[-1:]
        outputs = tuple(place for place in dict.fromkeys(_tensors(plan, written)) if place not in known)
        inputs = tuple(place for place in dict.fromkeys(_tensors(plan, call.args)) if place not in outputs)
        for place in inputs:
            source = memory.get(_memory(plan, place))
            if place not in known and source is not None:
                yield Call(-1, VIEW, (source,), (place,), {})
            known.add(place)
        yield Call(number, kind, inputs, outputs, told)
        known.update(outputs)
        memory.update({_memory(plan, place): place for place in outputs})


def _memory(plan: Any, place: int) -> tuple[int, int]:
    """Where a value lies; the place itself for one without a place in memory."""
    where = plan.values[place].val.allocation_info
    return (where.memory_id, where.memory_offset) if where is not None else (-1, place)


def _arguments(torch: Any, operator: Any) -> list[Any]:
    """The arguments of an operator as torch declares them. Raises Unsupported for one that torch does not have."""
    space, _, name = operator.name.partition("::")
    packet = getattr(getattr(torch.ops, space), name, None)
    schema = getattr(getattr(packet, operator.overload or "default", None), "_schema", None)
    if schema is None:
        raise Unsupported(f"torch does not know what {operator.name} is given, so no node is shown")
    return list(schema.arguments)


def _tensors(plan: Any, places: Sequence[int]) -> Iterator[int]:
    for place in places:
        value: Any = plan.values[place].val if place >= 0 else None
        if _is_tensor(value):
            yield place
        elif type(value).__name__ in LISTS:
            yield from _tensors(plan, value.items)


def _is_tensor(value: Any) -> bool:
    return type(value).__name__ == "Tensor"


def _is_constant(value: Any) -> bool:
    return _is_tensor(value) and bool(value.data_buffer_idx)


def _number(plan: Any, place: int) -> Any:
    """A number, a text, or a list of them; "" for another value."""
    value = plan.values[place].val
    kind = type(value).__name__
    if kind == "IntList":
        return [_number(plan, each) for each in value.items]
    if kind in ("BoolList", "DoubleList"):
        return value.items
    found = vars(value).values() if kind in ("Int", "Bool", "Double", "String") else ()
    return next(iter(found), "")


def _constants(model: Opened) -> dict[int, Array]:
    from xverify.formats.pte import dtype_of

    found = {}
    for place, each in enumerate(model.plan.values):
        if _is_constant(each.val) and dtype_of(each.val) != "bfloat16":
            content = model.read.constant_buffer[each.val.data_buffer_idx].storage
            count = math.prod(each.val.sizes)
            found[place] = np.frombuffer(bytes(content), dtype_of(each.val), count).reshape(each.val.sizes)
    return found


def _recorded(framework: Adapter, model: Opened, calls: Sequence[Call], inputs: Mapping[str, Any]) -> dict[int, Array]:
    """Place of a value -> what the event tracer recorded."""
    from executorch.devtools import Inspector

    sizes = model.plan.values
    room = sum(math.prod(sizes[place].val.sizes) for each in calls for place in (*each.inputs, *each.outputs)) * WIDEST
    program = framework.executorch.load_program(model.content, enable_etdump=True, debug_buffer_size=room + SPARE)
    program.load_method(model.plan.name).execute([each.contiguous() for each in inputs.values()])
    found: dict[int, Array] = {}
    outputs = {each.number: each.outputs for each in calls}
    with tempfile.TemporaryDirectory() as space:
        events, data = str(Path(space) / "events"), str(Path(space) / "data")
        program.write_etdump_result_to_file(events, data)
        for block in Inspector(etdump_path=events, debug_buffer_path=data).event_blocks:
            for event in block.events:
                places = outputs.get(event._instruction_id, ()) if event.name in CALLS else ()
                # A backend's event has its inputs, too, before its outputs.
                recorded = list(event.debug_data or ())[-len(places) :] if places else ()
                for place, tensor in zip(places, recorded):
                    found[place] = np.array(framework.to_numpy(tensor, None))
    return found
