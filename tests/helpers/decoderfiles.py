"""ONNX files of the decoders in tests/decoders, with the weights that they were made of."""

import subprocess
import sys
from pathlib import Path

FAMILIES = Path(__file__).parents[1] / "decoders"
SCRIPT = """
import sys
from pathlib import Path

import torch
from xverify.framework.runner import Source
from xverify.frameworks.torch.adapter import Adapter
from xverify.workload.spec import find_model

folder, file, place = Path(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
framework = Adapter(1, "cpu")
model = framework.build(Source(folder, file=file), {})
generator = torch.Generator().manual_seed(0)
state = {name: torch.randn(t.shape, generator=generator) * 0.15 + ("norm" in name) if t.is_floating_point() else t
         for name, t in model.state_dict().items()}
spec = find_model(folder).spec
inputs = tuple(torch.randint(0, 64, (2, 16)) if t.dtype == "int64" else torch.randn(t.sized(2)) for t in spec.inputs.values())
framework.export_decoder(model, inputs, (list(spec.inputs), list(spec.outputs)), place / "decoder.onnx", True)
model.load_state_dict(state)
import onnx
from xverify.weights import onnx as weights

graph = onnx.load(place / "decoder.onnx")
weights.to_model(graph, {name: t.numpy() for name, t in model.state_dict().items()})
onnx.save(graph, place / "decoder.onnx")
torch.save(model.state_dict(), place / "weights.pt")
"""


def exported(place: Path, family: str = "llama", file: str = "torch") -> Path:
    """A file ``decoder.onnx`` in a folder, and beside it ``weights.pt``. That of Whisper has a cache of the encoder's states."""
    place.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-c", SCRIPT, str(FAMILIES / family), file, str(place)]
    ended = subprocess.run(command, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    if family == "whisper":
        _hold_states(place / "decoder.onnx")
    return place / "decoder.onnx"


def changed(file: Path, fault: str) -> Path:
    """A copy of an exported file with a fault of FAULTS or UNUSABLE, beside it."""
    import onnx

    model = onnx.load(file)
    {**FAULTS, **UNUSABLE}[fault](model.graph)
    if any(node.domain == "com.microsoft" for node in model.graph.node):
        model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    onnx.checker.check_model(model)
    target = file.with_name("wrong.onnx")
    onnx.save(model, target)
    return target


def _hold_states(file: Path) -> None:
    """Change Whisper's file so that its cache holds the keys and values of the encoder's states, too.

    They are computed where ``use_cache_branch`` is false, and taken from the cache where it is true.
    """
    import onnx
    from onnx import TensorProto, helper

    model = onnx.load(file)
    graph = model.graph
    graph.input.append(helper.make_tensor_value_info("use_cache_branch", TensorProto.BOOL, [1]))
    for layer in range(2):
        for kind, number in (("key", 1), ("value", 2)):
            name, made = f"{layer}.encoder.{kind}", f"/layers.{layer}/encoder_attn/Transpose_{number}_output_0"
            graph.input.append(
                helper.make_tensor_value_info(f"past.{name}", TensorProto.FLOAT, ["batch", 4, "states", 12])
            )
            graph.output.append(
                helper.make_tensor_value_info(f"present.{name}", TensorProto.FLOAT, ["batch", 4, "all_states", 12])
            )
            branches = {
                f"{branch}_branch": helper.make_graph(
                    [helper.make_node("Identity", [value], [f"{branch}_{name}"], f"{branch}_{name}")],
                    f"{branch}_{name}", [], [helper.make_tensor_value_info(f"{branch}_{name}", TensorProto.FLOAT, None)],
                )
                for branch, value in (("then", f"past.{name}"), ("else", made))
            }  # fmt: skip
            chosen = helper.make_node("If", ["use_cache_branch"], [f"present.{name}"], f"choose_{name}", **branches)
            _let_take(graph, made, f"present.{name}")
            producer = next(place for place, node in enumerate(graph.node) if made in node.output)
            graph.node.insert(producer + 1, chosen)
    onnx.checker.check_model(model)
    onnx.save(model, file)


def _constant(graph, name, value):
    import numpy as np
    from onnx import numpy_helper

    graph.initializer.append(numpy_helper.from_array(np.array(value, np.int64), f"onnx::{name}"))
    return f"onnx::{name}"


def _let_take(graph, name, other):
    """Let all nodes take another value in place of this one."""
    for node in graph.node:
        for place, each in enumerate(node.input):
            if each == name:
                node.input[place] = other


def _before(graph, name, *nodes):
    """Let all nodes take the last output of these nodes, which stand first, in place of an input."""
    _let_take(graph, name, nodes[-1].output[0])
    for number, node in enumerate(nodes):
        graph.node.insert(number, node)


def _after(graph, name, *nodes):
    """Let these nodes make an output of the last of them, of a value that is called ``true_NAME``."""
    for node in graph.node:
        for names in (node.input, node.output):
            for place, each in enumerate(names):
                if each == name:
                    names[place] = f"true_{name}"
    graph.node.extend(nodes)


def _length(graph, fault):
    """Nodes that compute the number of tokens in the cache, as ``FAULT_length`` of shape (1)."""
    from onnx import helper

    two, three = (_constant(graph, f"{fault}{value}", [value]) for value in (2, 3))
    return [
        helper.make_node("Shape", ["past.0"], [f"{fault}_shape"], f"{fault}_shape"),
        helper.make_node("Slice", [f"{fault}_shape", two, three], [f"{fault}_length"], f"{fault}_length"),
    ]


def _late(graph):
    """Positions after a cache are one too large."""
    from onnx import helper

    one = _constant(graph, "late1", [1])
    _before(
        graph, "position_ids",
        *_length(graph, "late"),
        helper.make_node("Min", ["late_length", one], ["late_any"], "late_any"),
        helper.make_node("Add", ["position_ids", "late_any"], ["late_positions"], "late_positions"),
    )  # fmt: skip


def _padded(graph):
    """Positions after a cache are numbers of places, which count the padding."""
    from onnx import helper

    zero, axis = _constant(graph, "padded0", [0]), _constant(graph, "paddedaxis", 1)
    _before(
        graph, "position_ids",
        *_length(graph, "padded"),
        helper.make_node("Mul", ["position_ids", zero], ["padded_zeros"], "padded_zeros"),
        helper.make_node("Equal", ["padded_zeros", zero], ["padded_all"], "padded_all"),
        helper.make_node("Cast", ["padded_all"], ["padded_ones"], "padded_ones", to=7),
        helper.make_node("CumSum", ["padded_ones", axis], ["padded_counted"], "padded_counted", exclusive=1),
        helper.make_node("Add", ["padded_counted", "padded_length"], ["padded_places"], "padded_places"),
        helper.make_node("Greater", ["padded_length", zero], ["padded_any"], "padded_any"),
        helper.make_node("Where", ["padded_any", "padded_places", "position_ids"], ["padded_positions"], "padded_positions"),
    )  # fmt: skip


def _unmasked(graph):
    """Padding is not masked."""
    from onnx import helper

    one = _constant(graph, "unmasked", [1])
    _before(graph, "attention_mask", helper.make_node("Max", ["attention_mask", one], ["unmasked"], "unmasked"))


def _turned(graph, name):
    """A tensor that is returned is of the other sequences."""
    from onnx import helper

    axis, begin, end, step = (_constant(graph, f"row{i}", [value]) for i, value in enumerate((0, -1, -(2**31), -1)))
    _after(graph, name, helper.make_node("Slice", [f"true_{name}", begin, end, axis, step], [name], "rows_turned"))


def _other_row(graph):
    """The keys of the first layer that are returned are of the other sequences."""
    _turned(graph, "present.0")


def _other_states(graph):
    """The keys of the encoder's states that the first layer returns are of the other sequences."""
    _turned(graph, "present.0.encoder.key")


def _stale(graph):
    """The keys of the first layer that are returned are each of the token before."""
    from onnx import helper

    zero, one, last, axis = (_constant(graph, f"stale{value}", [value]) for value in (0, 1, -1, 2))
    _after(
        graph, "present.0",
        helper.make_node("Slice", ["true_present.0", zero, one, axis], ["stale_first"], "stale_first"),
        helper.make_node("Slice", ["true_present.0", zero, last, axis], ["stale_rest"], "stale_rest"),
        helper.make_node("Concat", ["stale_first", "stale_rest"], ["present.0"], "stale_keys", axis=2),
    )  # fmt: skip


def _base(graph):
    """The frequencies of the rotary embedding are those of another base."""
    import numpy as np
    from onnx import numpy_helper

    rates = [
        each for node in graph.node for each in node.attribute if "rotary_emb" in node.name and each.t.dims[:1] == [6]
    ]
    assert len(rates) == 1
    array = numpy_helper.to_array(rates[0].t)
    rates[0].t.CopyFrom(numpy_helper.from_array(array ** np.float32(0.9)))


def _narrow(graph):
    """The cache is kept in float16."""
    from onnx import TensorProto, helper

    for each in [*graph.input, *graph.output]:
        if each.name.startswith(("past.", "present.")):
            each.type.tensor_type.elem_type = TensorProto.FLOAT16
    for name in [each.name for each in graph.input if each.name.startswith("past.")]:
        _before(graph, name, helper.make_node("Cast", [name], [f"wide_{name}"], f"wide_{name}", to=TensorProto.FLOAT))
    for name in [each.name for each in graph.output if each.name.startswith("present.")]:
        _after(
            graph, name, helper.make_node("Cast", [f"true_{name}"], [name], f"narrow_{name}", to=TensorProto.FLOAT16)
        )


def _doubled(graph):
    """The keys of the first layer that are returned have every sequence twice."""
    from onnx import helper

    _after(graph, "present.0", helper.make_node("Concat", ["true_present.0"] * 2, ["present.0"], "doubled", axis=0))


def _unknown(graph):
    """An operator without float64 stands before the last layer, and positions after a cache are one too large."""
    from onnx import helper

    _late(graph)
    node = next(each for each in graph.node if each.name == "/model/layers.0/mlp/down_proj/MatMul")
    made, node.output[0] = node.output[0], "unknown"
    unknown = helper.make_node("SampleOp", ["unknown"], [made], "unknown", domain="com.microsoft")
    graph.node.insert(list(graph.node).index(node) + 1, unknown)


def renamed(file: Path) -> dict[str, str]:
    """Give the tensors of a file's cache names that say nothing, in place. Returns the pairs of input and output."""
    import onnx

    model = onnx.load(file)
    count = sum(each.name.startswith("past.") for each in model.graph.input)
    names = {f"past.{i}": f"held_{i}" for i in range(count)} | {f"present.{i}": f"made_{i}" for i in range(count)}
    for each in [*model.graph.input, *model.graph.output]:
        each.name = names.get(each.name, each.name)
    for node in model.graph.node:
        for texts in (node.input, node.output):
            texts[:] = [names.get(each, each) for each in texts]
    onnx.save(model, file)
    return {f"held_{i}": f"made_{i}" for i in range(count)}


FAULTS = {
    "late": _late, "padded": _padded, "unmasked": _unmasked, "other row": _other_row, "other states": _other_states,
    "stale": _stale, "base": _base,
}  # fmt: skip
UNUSABLE = {
    "narrow": _narrow,
    "doubled": _doubled,
    "unknown": _unknown,
}  # changes of which a line says why nothing is judged
