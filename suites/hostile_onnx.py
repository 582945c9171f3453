"""ONNX files that are made to harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from hostile import ANY, REFUSED, ROW, Trap
from onnx import TensorProto, helper, numpy_helper

MANY = 10**12
SECRET = "this belongs to somebody else"
FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64


def value(name: str, shape: Any, kind: int = FLOAT) -> Any:
    """An input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes: Sequence[Any], arrays: Any = (), x: Any = (4,), y: Any = None, **more: Any) -> Any:
    """A model from x to y. arrays: name -> array or TensorProto."""
    weights = [
        each if isinstance(each, TensorProto) else numpy_helper.from_array(each, name)
        for name, each in dict(arrays).items()
    ]
    functions = more.pop("functions", [])
    graph = helper.make_graph(nodes, "g", [value("x", x)], [value("y", y)], weights)
    opsets = [helper.make_opsetid("", more.pop("opset", 17)), helper.make_opsetid("local", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=more.pop("ir", 9), functions=functions)


def external(*entries: tuple[str, str], name: str = "w") -> Any:
    """A weight of four numbers that lies in another file."""
    tensor = TensorProto(name=name, data_type=FLOAT, dims=[4], data_location=TensorProto.EXTERNAL)
    for key, said in entries:
        tensor.external_data.add(key=key, value=said)
    return tensor


def add(left: str, right: str = "x", out: str = "y") -> Any:
    """The sum of two values."""
    return helper.make_node("Add", [left, right], [out])


def make(folder: Path) -> Iterator[Trap]:
    """Write the files."""

    def trap(
        name: str, made: Any, expect: str = ANY, says: str = "", never: str = "", more: Sequence[str] = ()
    ) -> Trap:
        path = folder / f"{name.replace(' ', '-')}.onnx"
        path.write_bytes(made if isinstance(made, bytes) else made.SerializeToString())
        return Trap(f"onnx: {name}", (str(path), *more), expect, says, never)

    yield from _external(folder, trap)
    yield from _memory(trap)
    yield from _shapes(trap)
    yield from _structure(trap)
    yield from _texts(trap)


Make = Callable[..., Trap]


def _external(folder: Path, trap: Make) -> Iterator[Trap]:
    """Weights that lie in files of others."""
    secret = folder.parent / "secret.bin"
    secret.write_bytes(SECRET.encode().ljust(64, b"."))
    (folder / "inside.bin").write_bytes(bytes(64))
    (folder / "link.bin").symlink_to(secret)
    (folder / "linked").symlink_to(folder.parent)
    outside = "outside of the folder"
    for name, location in (
        ("above", "../secret.bin"),
        ("absolute", str(secret)),
        ("through a link", "link.bin"),
        ("through a linked folder", "linked/secret.bin"),
        ("there and back", f"../{folder.name}/../secret.bin"),
        ("a device", "/dev/zero"),
    ):
        yield trap(
            f"external data {name}", model([add("w")], {"w": external(("location", location))}), REFUSED, outside
        )
    both = [("location", "inside.bin"), ("location", "../secret.bin")]
    for name, entries in (("the second location", both), ("the first location", both[::-1])):
        yield trap(f"external data {name}", model([add("w")], {"w": external(*entries)}), REFUSED)
    constant = helper.make_node("Constant", [], ["w"], value=external(("location", "../secret.bin")))
    yield trap("external data in a constant", model([constant, add("w")]), REFUSED, outside)
    body = helper.make_function("local", "F", ["x"], ["y"], [constant, add("w")], [helper.make_opsetid("", 17)])
    call = helper.make_node("F", ["x"], ["y"], domain="local")
    yield trap("external data in a function", model([call], functions=[body]), REFUSED, outside)
    sparse = model([add("w")])
    sparse.graph.sparse_initializer.add(
        values=external(("location", "../secret.bin")), indices=numpy_helper.from_array(np.arange(4)), dims=[4]
    )
    yield trap("external data in a sparse tensor", sparse, REFUSED, outside)
    for name, offset in (("behind the end", "1000"), ("before the beginning", "-16"), ("at a huge place", str(2**63))):
        entries = (("location", "inside.bin"), ("offset", offset), ("length", "16"))
        yield trap(f"external data {name}", model([add("w")], {"w": external(*entries)}), REFUSED)
    # Recorded tensors are read by the parent.
    data = folder / "recorded"
    data.mkdir()
    for name in ("input_0", "output_0"):
        (data / f"{name}.pb").write_bytes(external(("location", "../../secret.bin"), name="").SerializeToString())
    yield trap("recorded tensors outside", model([add("x")]), REFUSED, never=SECRET, more=("--against", str(data)))
    cut = folder / "cut"
    cut.mkdir()
    for name in ("input_0", "output_0"):
        (cut / f"{name}.pb").write_bytes(numpy_helper.from_array(np.ones(4, np.float32)).SerializeToString()[:-3])
    yield trap("recorded tensors cut off", model([add("x")]), REFUSED, more=("--against", str(cut)))
    large = folder / "large"
    large.mkdir()
    for name in ("input_0", "output_0"):
        (large / f"{name}.pb").write_bytes(
            TensorProto(data_type=FLOAT, dims=[MANY], raw_data=b"1234").SerializeToString()
        )
    yield trap("recorded tensors too large", model([add("x")]), REFUSED, more=("--against", str(large)))


def _memory(trap: Make) -> Iterator[Trap]:
    """Files that need more memory than there is."""
    shape = {"s": np.array([MANY], np.int64)}
    fill = helper.make_node("ConstantOfShape", ["s"], ["y"])
    yield trap("a constant of 10^12 elements", model([fill], shape), ROW)
    yield trap(
        "an expansion to 10^12 elements", model([helper.make_node("Expand", ["x", "s"], ["y"])], shape, [1]), ROW
    )
    total = [
        helper.make_node("Expand", ["x", "s"], ["e"]),
        helper.make_node("ReduceSum", ["e"], ["y"], keepdims=0),
    ]
    yield trap("an expansion in between", model(total, shape, [1]), ROW)
    # Just above the limit of memory, where allocating may succeed and writing may not.
    some = {"s": np.array([4 * 10**9], np.int64)}
    yield trap("an expansion to 16 GB", model(total, some, [1]), ROW)
    doubling = [helper.make_node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(45)]
    doubling[0].input[:] = ["x", "x"]
    doubling[-1].output[:] = ["y"]
    yield trap("doubled 45 times", model(doubling), ROW)
    yield trap("a range of 10^12", _ranges(MANY), ROW)
    yield trap("an input of 10^12 elements", model([helper.make_node("Relu", ["x"], ["y"])], x=[10**6, 10**6]), REFUSED)
    declared = TensorProto(name="w", data_type=FLOAT, dims=[10**6, 10**6])
    yield trap("a weight without its values", model([add("w")], {"w": declared}), ANY)
    once = numpy_helper.from_array(np.ones(1, np.float32), "w")
    once.dims[:] = [MANY]
    yield trap("a weight with one of 10^12 values", model([add("w")], {"w": once}), ANY)
    sparse = model([add("w")])
    sparse.graph.sparse_initializer.add(
        values=numpy_helper.from_array(np.ones(1, np.float32), "w"),
        indices=numpy_helper.from_array(np.zeros(1, np.int64)),
        dims=[MANY],
    )
    yield trap("a sparse weight of 10^12", sparse, ANY)


def _ranges(limit: int) -> Any:
    arrays = {"a": np.array(0.0, np.float32), "b": np.array(limit, np.float32), "d": np.array(1.0, np.float32)}
    return model([helper.make_node("Range", ["a", "b", "d"], ["r"]), add("r")], arrays, [1])


def _shapes(trap: Make) -> Iterator[Trap]:
    """Shapes that are no shapes."""
    relu = helper.make_node("Relu", ["x"], ["y"])
    for name, shape in (
        ("negative", [-5]),
        ("empty", [0]),
        ("beyond 64 bits", [2**62, 4]),
        ("of rank 1000", [1] * 1000),
    ):
        yield trap(f"an input that is {name}", model([relu], x=shape), ANY)
    yield trap(
        "a reshape that does not fit", model([helper.make_node("Reshape", ["x", "s"], ["y"])], {"s": np.array([7])})
    )
    nan = model([helper.make_node("Sqrt", ["x"], ["y"])])
    yield trap("NaN for most inputs", nan, ROW)
    yield trap(
        "infinite for most inputs",
        model([helper.make_node("Exp", ["e"], ["y"]), helper.make_node("Exp", ["x"], ["e"])][::-1]),
        ROW,
    )


def _structure(trap: Make) -> Iterator[Trap]:
    """Graphs that never end, or are none."""
    opset = [helper.make_opsetid("", 17), helper.make_opsetid("local", 1)]
    call = helper.make_node("F", ["x"], ["y"], domain="local")
    itself = helper.make_function("local", "F", ["x"], ["y"], [call], opset)
    yield trap("a function that calls itself", model([call], functions=[itself]))
    wide = [
        helper.make_function(
            "local", f"F{i}", ["x"], ["y"], [
                helper.make_node(f"F{i + 1}" if i < 30 else "Relu", ["x"], ["a"], domain="local" if i < 30 else ""),
                helper.make_node(f"F{i + 1}" if i < 30 else "Relu", ["a"], ["y"], domain="local" if i < 30 else ""),
            ], opset,
        )
        for i in range(31)
    ]  # fmt: skip
    yield trap(
        "functions that double 31 times", model([helper.make_node("F0", ["x"], ["y"], domain="local")], functions=wide)
    )
    body = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["d"]), helper.make_node("Add", ["v", "v"], ["w"])],
        "b",
        [value("i", [], INT64), value("c", [], TensorProto.BOOL), value("v", [4])],
        [value("d", [], TensorProto.BOOL), value("w", [4])],
    )
    loop = helper.make_node("Loop", ["n", "t", "x"], ["y"], body=body)
    arrays = {"n": np.array(2**62), "t": np.array(True)}
    yield trap("a loop of 2^62 iterations", model([loop], arrays), ROW)
    nested = helper.make_graph([helper.make_node("Relu", ["x"], ["o"])], "b", [], [value("o", [4])])
    for _ in range(25):
        branch = helper.make_node("If", ["t"], ["o"], then_branch=nested, else_branch=helper.make_graph(
            [helper.make_node("Relu", ["x"], ["o"])], "e", [], [value("o", [4])]))  # fmt: skip
        nested = helper.make_graph([branch], "b", [], [value("o", [4])])
    deep = model([helper.make_node("If", ["t"], ["y"], then_branch=nested, else_branch=nested)], {"t": np.array(True)})
    yield trap("branches nested 25 deep", deep)
    chain = [helper.make_node("Relu", [f"v{i}"], [f"v{i + 1}"]) for i in range(20_000)]
    chain[0].input[:], chain[-1].output[:] = ["x"], ["y"]
    yield trap("20,000 nodes", model(chain))
    yield trap("a circle", model([add("y", "x", "z"), add("z")]))
    yield trap("an output that nothing computes", model([add("x", "x", "z")]))
    yield trap("two values of one name", model([add("x"), add("x")]))
    for name, more in (
        ("opset 9999", {"opset": 9999}),
        ("opset 0", {"opset": 0}),
        ("IR version 99", {"ir": 99}),
        ("IR version 0", {"ir": 0}),
    ):
        yield trap(name, model([helper.make_node("Relu", ["x"], ["y"])], **more))  # type: ignore[arg-type]
    yield trap("no opset", onnx.ModelProto(ir_version=9, graph=model([add("x")]).graph))
    yield trap("no nodes", model([]))
    yield trap("an unknown operator", model([helper.make_node("Nonsense", ["x"], ["y"])]), says="Nonsense")
    for kind in ("sequence", "optional"):
        typed = getattr(helper, f"make_{kind}_type_proto")(helper.make_tensor_type_proto(FLOAT, [4]))
        graph = helper.make_graph([], "g", [helper.make_value_info("x", typed)], [helper.make_value_info("x", typed)])
        yield trap(f"an input that is a {kind}", helper.make_model(graph, opset_imports=opset, ir_version=9))
    strings = helper.make_graph([], "g", [value("x", [2], TensorProto.STRING)], [value("x", [2], TensorProto.STRING)])
    yield trap("strings", helper.make_model(strings, opset_imports=opset, ir_version=9))


def _texts(trap: Make) -> Iterator[Trap]:
    """Names that are more than names."""
    for name, text in (
        ("lines", "first\nsecond"),
        ("control codes", "\x1b[2J\x1b]0;title\x07"),
        ("markup", "[/bold][red]wrong[/nonsense]"),
        ("a megabyte", "n" * 2**20),
        ("a path", "../../../../tmp/written"),
        ("a slash", "0/x"),
        ("no letters", " "),
    ):
        node = helper.make_node("Relu", [text], ["y"], name=text)
        made = model([node])
        made.graph.input[0].name = text
        made.graph.name = text
        made.producer_name = text
        yield trap(f"a name with {name}", made, never="\x1b[2J")
        unknown = helper.make_node(text, ["x"], ["y"], name=text)
        yield trap(f"an operator with {name}", model([unknown]), never="\x1b[2J")
