"""SavedModels and TorchScript files that reach outside of the model, written byte by byte, and harmless ones that are like them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

# One operator of TensorFlow of each family that has an effect, or that nobody knows.
EFFECTS = (
    *(
        "WriteFile",
        "ReadFile",
        "MatchingFiles",
        "SaveV2",
        "SaveSlices",
        "MergeV2Checkpoints",
        "RestoreV2",
        "ImmutableConst",
    ),
    *("DatasetToTFRecord", "CacheDatasetV2", "TextLineDataset", "SnapshotDatasetV2", "CreateSummaryFileWriter"),
    *(
        "WriteScalarSummary",
        "DebugIdentityV2",
        "CopyHost",
        "EagerPyFunc",
        "PyFuncStateless",
        "RemoteCall",
        "DecodeProtoV2",
    ),
    *("InitializeTableFromTextFileV2", "XlaCallModule", "DatasetFromGraph", "Abort", "AnOperatorOfNobody"),
)


def varint(number: int, more: int = 0) -> bytes:
    """An integer of variable length. more: bytes beyond those that it needs."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number]) if not more else bytes([*found, number | 128, *[128] * (more - 1), 0])


def field(number: int, content: bytes | str | int, more: int = 0) -> bytes:
    """A field of a protobuf message."""
    if isinstance(content, int):
        return varint(number << 3, more) + varint(content, more)
    content = content.encode() if isinstance(content, str) else content
    return varint(number << 3 | 2, more) + varint(len(content), more) + content


def entry(key: str, value: bytes) -> bytes:
    """An entry of a map."""
    return field(1, key) + field(2, value)


def call(name: str) -> bytes:
    """The value of an attribute that is a function."""
    return field(10, field(1, name))


def node(name: str, operator: str, inputs: Iterable[str] = (), more: int = 0, **attributes: bytes) -> bytes:
    """A NodeDef."""
    return b"".join([
        field(1, name), field(2, operator, more), *(field(3, each) for each in inputs),
        *(field(5, entry(key, value)) for key, value in attributes.items()),
    ])  # fmt: skip


def function(name: str, nodes: Iterable[bytes], arguments: Iterable[str] = (), attributes: Iterable[str] = ()) -> bytes:
    """A FunctionDef."""
    signature = field(1, name) + b"".join(field(2, field(1, each)) for each in arguments)
    kept = b"".join(field(5, entry(each, b"")) for each in attributes)
    return field(1, signature) + b"".join(field(3, each) for each in nodes) + kept


def graph(nodes: Iterable[bytes], functions: Iterable[bytes] = (), library: bytes = b"") -> bytes:
    """A GraphDef."""
    held = b"".join(field(1, each) for each in functions) + library
    return b"".join(field(1, each) for each in nodes) + field(2, held)


def meta(
    graph: bytes, saver: tuple[str, str, str] = ("", "", ""), served: Iterable[str] = ("y:0",), more: bytes = b""
) -> bytes:
    """A MetaGraphDef. saver: the names of its file, of the tensor that saves and of the operator that restores."""
    outputs = b"".join(field(2, entry(each, field(1, each))) for each in served)
    names = b"".join(field(number, each) for number, each in enumerate(saver, 1))
    return field(2, graph) + field(3, names) + field(5, entry("serving_default", outputs)) + more


def saved(*metas: bytes) -> bytes:
    """A SavedModel."""
    return field(1, 1) + b"".join(field(2, each) for each in metas)


X, Y = node("x", "Placeholder"), node("y", "Identity", ["x"])


def risky_graphs() -> Iterator[tuple[str, bytes]]:
    """(name, ``saved_model.pb``) of graphs of which each has an effect."""
    for operator in EFFECTS:
        yield f"{operator} in the graph", saved(meta(graph([X, Y, node("e", operator)])))
        yield f"{operator} with long numbers", saved(meta(graph([X, Y, node("e", operator, more=1)])))
        inner = function("f", [node("e", operator)])
        yield (
            f"{operator} in a function",
            saved(meta(graph([X, Y, node("c", "PartitionedCall", f=call("f"))], [inner]))),
        )
    inner, outer = function("f", [node("e", "WriteFile")]), function("g", [node("c", "PartitionedCall", f=call("f"))])
    plain = [X, Y]
    for name, nodes in {
        "the name of an operator": [node("c", "f")],
        "a list of branches": [node("c", "Case", branches=field(1, field(9, field(1, "f"))))],
        "an attribute of a function": [
            node("c", "If", then_branch=field(10, field(1, "h") + field(2, entry("f", call("f")))))
        ],
        "a text": [node("c", "Identity", _gradient_op_type=field(2, "f"))],
        "another function": [node("c", "While", body=call("g"))],
    }.items():
        yield f"a function by {name}", saved(meta(graph([*plain, *nodes], [inner, outer])))
    yield "a function that nothing calls", saved(meta(graph(plain, [inner])))
    yield "a gradient", saved(meta(graph(plain, [inner], field(2, field(1, "x") + field(2, "f")))))
    bad = graph([node("e", "WriteFile")])
    yield "the second graph", saved(meta(graph(plain)), meta(bad))
    yield "a graph in two parts", saved(meta(graph(plain)) + field(2, bad))
    yield (
        "the name of an operator that is given twice",
        saved(meta(graph([X, Y, node("e", "Identity") + field(2, "ReadFile")]))),
    )
    yield (
        "PrintV2 to a file",
        saved(meta(graph([X, Y, node("e", "PrintV2", output_stream=field(2, "file:///tmp/ran"))]))),
    )
    yield "PrintV2 to what a caller says", saved(meta(graph([X, Y, node("e", "PrintV2", output_stream=field(9, "f"))])))
    init = field(4, entry("saved_model_main_op", field(1, field(1, "init"))))
    yield (
        "an initialisation",
        saved(meta(graph([X, Y, node("init", "NoOp", ["^e"]), node("e", "ReadFile")]), more=init)),
    )
    yield from ((name, content) for name, content in _savers().items() if not name.startswith("right"))
    yield from ((name, content) for name, content in _tables().items() if not name.startswith("right"))


def right_graphs() -> Iterator[tuple[str, bytes]]:
    """(name, ``saved_model.pb``) of graphs that reach nothing but files of the SavedModel."""
    yield "a plain graph", saved(meta(graph([X, Y])))
    yield "PrintV2 to stderr", saved(meta(graph([X, Y, node("e", "PrintV2", output_stream=field(2, "stderr"))])))
    yield "PrintV2 as it is", saved(meta(graph([X, Y, node("e", "PrintV2")])))
    yield from ((name, content) for name, content in {**_savers(), **_tables()}.items() if name.startswith("right"))


def _savers() -> dict[str, bytes]:
    """Graphs with the functions of a saver, which TensorFlow writes into every SavedModel."""
    name = ("file:0", "save:0", "restore")
    call_save, call_restore = "StatefulPartitionedCall", "StatefulPartitionedCall"
    nodes = [
        X,
        Y,
        node("file", "Placeholder"),
        node("v", "VarHandleOp"),
        node("save", call_save, ["file", "v"], f=call("s")),
    ]
    restore = node("restore", call_restore, ["file", "v"], f=call("r"))
    other = node("restore", call_restore, ["x", "v"], f=call("r"))
    s = function("s", [node("e", "SaveV2", ["file"]), node("m", "MergeV2Checkpoints", ["file"])], ["file", "v"])
    r = function("r", [node("e", "RestoreV2", ["file"]), node("a", "AssignVariableOp", ["v", "e"])], ["file", "v"])
    both = function("r", [node("e", "RestoreV2", ["file"]), node("w", "WriteFile", ["file"])], ["file", "v"])
    constant = function("r", [node("c", "Const"), node("e", "RestoreV2", ["c:output:0"])], ["file", "v"])
    objects = field(7, field(2, entry("s", b"")))
    of_restore = field(7, field(2, entry("r", b"")))
    plain = graph([*nodes, restore], [s, r])
    direct = [*nodes, node("back", "RestoreV2", ["file"]), node("restore", "NoOp", ["^back"])]
    return {
        "right: a saver": saved(meta(plain, name)),
        "right: a saver without functions": saved(meta(graph(direct, [s]), name)),
        "a saver that is named by a signature": saved(meta(plain, name, ["y:0", "save:0"])),
        "a saver whose file is not fed": saved(meta(graph([*nodes, other], [s, r]), name)),
        "a saver that restores and writes": saved(meta(graph([*nodes, restore], [s, both]), name)),
        "a saver that restores another file": saved(meta(graph([*nodes, restore], [s, constant]), name)),
        "a signature that restores": saved(meta(plain, name, ["y:0", "restore"])),
        "a signature that restores without a function": saved(meta(graph(direct, [s]), name, ["back:0"])),
        "an object that saves": saved(meta(plain, name, more=objects)),
        "an object that restores": saved(meta(plain, name, more=of_restore)),
        "a node that calls what saves": saved(
            meta(graph([*nodes, restore, node("z", "PartitionedCall", f=call("s"))], [s, r]), name)
        ),
        "a node behind what saves": saved(meta(graph([*nodes, restore, node("z", "Identity", ["^save"])], [s, r]), name)),
        "a function that takes the place of another": saved(
            meta(graph([*nodes, restore], [s + field(5, entry("api_implements", b"")), r]), name)
        ),
        "a function that calls what restores": saved(
            meta(graph([*nodes, restore], [s, r, function("z", [node("c", "PartitionedCall", f=call("r"))])]), name)
        ),
    }  # fmt: skip


def _tables() -> dict[str, bytes]:
    """Graphs whose tables are initialised from a text file, here one that TensorFlow feeds as the asset of the node "a"."""
    asset = field(6, field(1, field(1, "a:0")) + field(2, "words.txt"))
    outside = field(6, field(1, field(1, "a:0")) + field(2, "../../words.txt"))
    text = field(6, 7)
    table, kind = "InitializeTableFromTextFileV2", {"dtype": text}
    variable = [
        node("a", "Placeholder"), node("v", "VarHandleOp", **kind), node("set", "AssignVariableOp", ["v", "a"], **kind),
        node("get", "ReadVariableOp", ["v", "^set"], **kind),
    ]  # fmt: skip
    other = node("reset", "AssignVariableOp", ["v", "x"], **kind)
    init = node("init", "StatefulPartitionedCall", ["get", "h"], f=call("i"))
    i = function("i", [node("e", table, ["h", "file"])], ["file", "h"])
    nodes = [X, Y, node("h", "HashTableV2")]
    # The object 0 is the asset, and 1 is a variable: SavedObject.asset and SavedObject.variable.
    objects = field(1, field(5, b"\x08\0")) + field(1, field(7, b""))
    bound = {first: field(7, objects + field(2, entry("i", field(2, bytes([first, 1]))))) for first in (0, 1)}
    direct = [*nodes, node("a", "Const"), node("e", table, ["h", "a"])]
    return {
        "right: a table": saved(meta(graph([*nodes, *variable, init], [i]), more=asset + bound[0])),
        "right: a table without functions": saved(meta(graph(direct), more=asset)),
        "a table of another file": saved(meta(graph([*direct[:-1], node("e", table, ["h", "x"])]), more=asset)),
        "a table that an object gives another file": saved(
            meta(graph([*nodes, *variable, init], [i]), more=asset + bound[1])
        ),
        "a table of a variable with another file": saved(
            meta(graph([*nodes, *variable, other, init], [i]), more=asset + bound[0])
        ),
        "a table that a signature initialises": saved(meta(graph(direct), served=["y:0", "e"], more=asset)),
        "an asset outside": saved(meta(graph(direct), more=outside)),
    }


CODE = """class M(Module):
  __parameters__ = []
  __buffers__ = []
  training : bool
  def forward(self: __torch__.M,
    x: Tensor) -> Tensor:
    y = torch.neg(x)
{}    return y
"""
STATE = """  def __setstate__(self: __torch__.M,
    state: Tensor) -> NoneType:
    torch.save(state, "ran")
    return None
"""
# Lines of a script that write or read a file, or may do so, or that PyTorch does not write.
LINES = (
    *('torch.save(y, "ran")', 'torch .save(y, "ran")', 'torch. save(y, "ran")', 'torch.\n      save(y, "ran")'),
    *('torch.save (y, "ran")', '(torch).save(y, "ran")', '(torch.save)(y, "ran")', 'torch.autograd.save(y, "ran")'),
    *('ops.aten.save(y, "ran")', 'ops.aten .save(y, "ran")', 'ops .aten.save(y, "ran")'),
    *('(y).save("ran")', 'y.save("ran")', '[y].save("ran")', '"ran".save("ran")'),
    *('_0 = torch.save\n    _0(y, "ran")', '_0 = torch\n    _0.save(y, "ran")', '_0 = ops.aten\n    _0.save(y, "ran")'),
    *(
        '_0 = y.save\n    _0("ran")',
        '_0 = __torch__.f\n    _0 = y.save\n    _0("ran")',
        '_0 = __torch__.f(y, )\n    _0("ran")',
    ),
    *(
        'getattr(torch, "save")(y, "ran")',
        'getattr(y, "save")("ran")',
        '_0 = getattr(y, "sa\\166e")\n    _1 = fork(_0, "ran")',
    ),
    *('_0 = fork(y.save, "ran")', '_0 = fork(torch.save, y, "ran")', '_0 = y.save\n    _1 = fork(_0, "ran")'),
    '__forked_function = y.save\n    _1 = fork(__forked_function, "ran")',
    *('_0 = torch.from_file("/etc/passwd", False, 4)', 'ops.image.write_file("ran", y)', "ops.mine.anything(y)"),
    *('ops.prim.rpc_sync("a", y)', "_0 = __torch__.torch.classes.mine.C(y, )", "_0 = torch.no_such_operator(y)"),
    *('_0 = "a" "b"', "# a comment", "torch.add(y, \\\n1)", "_0 = '''a'''", "\ty = y", "y = y\r", "$y = y"),
)


def script(path: Path, line: str = "", more: str = "", data: bytes = b"") -> Path:
    """A TorchScript file. line: of its forward. more: other methods. data: the content of ``data.pkl``."""
    content = CODE.format(f"    {line}\n" if line else "") + more
    return archive(
        path, {"m/code/__torch__.py": content, "m/data.pkl": data, "m/constants.pkl": b"", "m/version": b"3\n"}
    )


def archive(path: Path, members: Mapping[str, bytes | str]) -> Path:
    """A zip archive."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as file:
        for name, content in members.items():
            file.writestr(name, content)
    path.write_bytes(written.getvalue())
    return path
