"""What is given is compared or refused: arrays of other dtypes and byte orders, two entries of one name, and exchanged tensors."""

import json
import sys
import warnings
import zipfile

import numpy as np
import pytest
from helpers.sampleresults import RESULT

from xverify.checking.arrays import load
from xverify.errors import UsageError
from xverify.framework.modelfile import misfit
from xverify.results.file import write
from xverify.weights import npz, save_file

pytestmark = pytest.mark.usefixtures("in_one_process")
X = np.random.default_rng(1).standard_normal((2, 8)).astype(np.float32)
WEIGHTS = np.random.default_rng(0).standard_normal((8, 6)).astype(np.float32)
BIG = ">" if sys.byteorder == "little" else "<"  # the other byte order
LONG = np.dtype(np.longdouble).itemsize > 8


def refused(done, *says):
    assert done.code == 2, done.out + done.err
    assert sum(line.startswith("xverify") for line in done.err.splitlines()) == 1, done.err
    for each in says:
        assert each in done.err, done.err


@pytest.fixture
def model(tmp_path):
    """y = x @ w[:, index], as an ONNX file."""
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    kinds = {"x": (onnx.TensorProto.FLOAT, [2, 8]), "index": (onnx.TensorProto.INT32, [3])}
    inputs = [onnx.helper.make_tensor_value_info(name, *kind) for name, kind in kinds.items()]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2, 3])]
    nodes = [
        onnx.helper.make_node("Gather", ["w", "index"], ["chosen"], axis=1),
        onnx.helper.make_node("MatMul", ["x", "chosen"], ["y"]),
    ]
    graph = onnx.helper.make_graph(nodes, "model", inputs, outputs, [onnx.numpy_helper.from_array(WEIGHTS, "w")])
    made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(made, tmp_path / "m.onnx")
    return tmp_path / "m.onnx"


INDEX = np.array([0, 5, 2])
RECORDED = {"x": X, "index": INDEX.astype(np.int32), "y": X @ WEIGHTS[:, INDEX]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind",
    [f"{BIG}f4", f"{BIG}f8", pytest.param(np.longdouble, marks=pytest.mark.skipif(not LONG, reason="it is float64"))],
)
def test_arrays_of_another_byte_order_or_of_long_numbers_have_their_values(xverify, tmp_path, model, kind):
    arrays = {name: array.astype(kind) if array.dtype.kind == "f" else array for name, array in RECORDED.items()}
    np.savez(tmp_path / "r.npz", **arrays)
    done = xverify("check", model, "--against", tmp_path / "r.npz")
    assert done.code == 0, done.out + done.err
    np.savez(tmp_path / "x.npz", x=arrays["x"], index=INDEX.astype(f"{BIG}i8"))
    done = xverify("check", model, "--inputs", tmp_path / "x.npz")
    assert done.code == 0, done.out + done.err


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--inputs", "--against"])
def test_whole_numbers_that_an_input_cannot_take_are_refused(xverify, tmp_path, model, option):
    given = {**RECORDED, "index": INDEX + np.array([0, 2**32, 0])}
    if option == "--inputs":
        del given["y"]
    np.savez(tmp_path / "r.npz", **given)
    refused(xverify("check", model, option, tmp_path / "r.npz"), "r.npz", "index", "int32", str(2**32 + 5))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["00/x", "0²/x", "1" * 4000 + "/x"])
def test_a_case_that_is_written_in_another_way_is_refused(xverify, tmp_path, model, name):
    npz.save_file({"x": X, "index": RECORDED["index"], name: X + 1}, tmp_path / "x.npz")
    refused(xverify("check", model, "--inputs", tmp_path / "x.npz"), "x.npz", name[:60])


def write_twice(path, name, *contents):
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w") as archive:
        warnings.simplefilter("ignore")
        for content in contents:
            archive.writestr(name, content)


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--inputs", "--against"])
@pytest.mark.parametrize("name", ["x", "index"])
def test_two_arrays_of_one_name_that_are_given_are_refused(xverify, tmp_path, model, option, name):
    np.savez(
        tmp_path / "r.npz",
        **{each: RECORDED[each] for each in (("x", "index", "y") if option == "--against" else ("x", "index"))},
    )
    with zipfile.ZipFile(tmp_path / "r.npz") as archive:
        contents = {info.filename: archive.read(info) for info in archive.infolist()}
    with warnings.catch_warnings(), zipfile.ZipFile(tmp_path / "r.npz", "a") as archive:
        warnings.simplefilter("ignore")
        archive.writestr(f"{name}.npy", contents[f"{name}.npy"])
    refused(xverify("check", model, option, tmp_path / "r.npz"), "r.npz", f"it holds {name!r} twice")


@pytest.mark.skipif(not LONG, reason="a long number is float64 here")
def test_long_numbers_that_are_no_float64_are_refused(tmp_path):
    np.savez(tmp_path / "r.npz", x=np.array([1, np.longdouble(1) + np.finfo(np.longdouble).eps, np.nan]))
    with pytest.raises(UsageError, match=r"r\.npz: the array 'x' is \w+, and 1 of its 3 values are no float64"):
        load(tmp_path / "r.npz", "--against")


@pytest.mark.parametrize("kind", ["f4", "f8", "i2", "i8", "u4", "b1", "f2"])
def test_arrays_are_in_the_byte_order_of_the_machine(tmp_path, kind):
    values = np.array([0, 1, 2]).astype(kind)
    np.savez(tmp_path / "r.npz", x=values.astype(values.dtype.newbyteorder(BIG)))
    loaded = load(tmp_path / "r.npz", "--against")["x"]
    assert loaded.dtype == values.dtype
    assert loaded.dtype.isnative
    assert loaded.tolist() == values.tolist()


@pytest.mark.parametrize(
    ("values", "dtype", "fits"),
    [
        ([2**31 - 1, -(2**31)], "int32", True), ([2**31], "int32", False), ([-1], "uint8", False), ([255], "uint8", True),
        ([8], "int4", False), ([-8], "int4", True), ([2**40], "float32", True), ([2**40], "int64", True), ([], "int8", True),
        ([2**40], "", True), ([1, 2], "string", True),
    ],
)  # fmt: skip
def test_which_whole_numbers_an_input_takes(values, dtype, fits):
    assert (misfit(np.array(values, np.int64), dtype) == "") is fits


@pytest.mark.parametrize("command", ["report", "explain", "diff", "replay"])
def test_two_entries_of_one_name_in_a_json_file_are_refused(xverify, tmp_path, command):
    folder = tmp_path / "receipt"
    folder.mkdir()
    path = folder / "receipt.json" if command == "replay" else tmp_path / "r.json"
    if command == "replay":
        path.write_text('{"receipt_version": 1, "receipt_version": 1}')
    else:
        write(RESULT, path)
        text = path.read_text()
        path.write_text('{"verdict": "FAIL",' + text.lstrip()[1:])
        assert json.loads(path.read_text())["verdict"] == json.loads(text)["verdict"]
    files = [folder] if command == "replay" else [path, path] if command == "diff" else [path]
    refused(xverify(command, *files), path.name, "twice")


def test_two_entries_of_one_name_in_the_file_of_a_sweep_are_refused(xverify, tmp_path):
    (tmp_path / "s.toml").write_text('[matrix]\nmodel = ["mlp"]\nmodel = ["lenet"]\n')
    refused(xverify("sweep", tmp_path / "s.toml", "--dry-run"), "s.toml")


@pytest.mark.parametrize("action", ["digest", "diff", "convert"])
def test_two_arrays_of_one_name_in_a_weight_file_are_refused(xverify, tmp_path, action):
    save_file({"a": X}, tmp_path / "one.npz")
    with zipfile.ZipFile(tmp_path / "one.npz") as archive:
        content = archive.read("a.npy")
    write_twice(tmp_path / "twice.npz", "a.npy", content, content)
    last = {"digest": [], "diff": [tmp_path / "one.npz"], "convert": [tmp_path / "made.npz"]}[action]
    refused(xverify("weights", action, tmp_path / "twice.npz", *last), "twice.npz", "'a'")


def attention(seed=0):
    random = np.random.default_rng(seed)
    names = ("q_proj.weight", "k_proj.weight", "v_proj.weight", "q_proj.bias", "k_proj.bias")
    return {name: random.standard_normal((6, 6) if "weight" in name else 6).astype(np.float32) for name in names}


@pytest.mark.parametrize("suffix", ["weight", "bias"])
def test_exchanged_tensors_are_a_difference(xverify, tmp_path, suffix):
    right = attention()
    q, k = f"q_proj.{suffix}", f"k_proj.{suffix}"
    save_file(right, tmp_path / "right.npz")
    save_file({**right, q: right[k], k: right[q]}, tmp_path / "left.npz")
    done = xverify("weights", "diff", tmp_path / "left.npz", tmp_path / "right.npz")
    assert done.code == 1, done.out
    assert f"{q} is {k} of the right, and both files have both names" in done.out
    assert "2 of 5 tensors differ" in done.out


def test_many_exchanged_tensors_are_named_together(xverify, tmp_path):
    right = {f"layers.{index}.weight": array for index, array in enumerate(attention().values())}
    names = list(right)
    save_file(right, tmp_path / "right.npz")
    save_file({name: right[names[index - 1]] for index, name in enumerate(names)}, tmp_path / "left.npz")
    done = xverify("weights", "diff", tmp_path / "left.npz", tmp_path / "right.npz")
    assert done.code == 1, done.out
    assert "5 tensors have the names of others, and both files have these names" in done.out


def test_renamed_tensors_are_equal(xverify, tmp_path):
    right = attention()
    save_file(right, tmp_path / "right.npz")
    save_file({f"attention.{name}": array for name, array in right.items()}, tmp_path / "left.npz")
    done = xverify("weights", "diff", tmp_path / "left.npz", tmp_path / "right.npz")
    assert done.code == 0, done.out
    assert "equal: 10 tensors, up to the names" in done.out


COUNTED = {
    "keras": "conv2d{}/{}", "paddle": "conv2d{}.w_0:{}", "onnx": "onnx::MatMul{}/{}", "nested": "resnet_1/block{}/conv/{}",
}  # fmt: skip


def counted(style, numbers, arrays):
    """The weights of layers whose names a counter gave: "" for the first, then _1, _2, ..."""
    made = {}
    for number, layer in zip(numbers, arrays):
        for name, array in layer.items():
            made[COUNTED[style].format(f"_{number}" if number or style == "paddle" else "", name)] = array
    return made


def layers(count):
    random = np.random.default_rng(4)
    return [
        {"kernel": random.standard_normal((4, 4)).astype(np.float32), "bias": np.zeros(4, np.float32)}
        for _ in range(count)
    ]


@pytest.mark.parametrize("style", COUNTED)
@pytest.mark.parametrize("numbers", [(1, 2, 3, 4), (0, 2, 3, 4), (9, 10, 11, 100)])
def test_a_counter_that_began_elsewhere_makes_no_difference(xverify, tmp_path, style, numbers):
    arrays = layers(4)
    save_file(counted(style, numbers, arrays), tmp_path / "left.npz")
    save_file(counted(style, range(4), arrays), tmp_path / "right.npz")
    for order in (1, -1):
        done = xverify("weights", "diff", *[tmp_path / f"{name}.npz" for name in ("left", "right")][::order])
        assert (done.code, done.out.splitlines()[-1][:6]) == (0, "equal:"), done.out


@pytest.mark.parametrize("style", COUNTED)
@pytest.mark.parametrize("order", [(1, 0, 2, 3), (3, 0, 1, 2)])
@pytest.mark.parametrize("numbers", [(0, 1, 2, 3), (1, 2, 3, 4)])
def test_layers_in_another_order_are_a_difference_whatever_their_numbers(xverify, tmp_path, style, order, numbers):
    arrays = layers(4)
    save_file(counted(style, numbers, [arrays[index] for index in order]), tmp_path / "left.npz")
    save_file(counted(style, range(4), arrays), tmp_path / "right.npz")
    done = xverify("weights", "diff", tmp_path / "left.npz", tmp_path / "right.npz")
    assert (done.code, "and both files have" in done.out) == (1, True), done.out


def test_a_changed_layer_is_a_difference_where_a_counter_began_elsewhere(xverify, tmp_path):
    arrays = layers(4)
    save_file(counted("keras", range(4), arrays), tmp_path / "right.npz")
    arrays[2]["kernel"] = arrays[2]["kernel"] + np.float32(0.1)
    save_file(counted("keras", range(1, 5), arrays), tmp_path / "left.npz")
    done = xverify("weights", "diff", tmp_path / "left.npz", tmp_path / "right.npz")
    assert done.code == 1, done.out
    assert "conv2d_3/kernel" in done.out
    [says] = [line for line in done.out.splitlines() if line.startswith("conv2d_1/kernel is")]
    assert says == "conv2d_1/kernel is conv2d/kernel of the right, and both files have conv2d_1/kernel"


def convolution(bias=True, eps=1e-5):
    """(A convolution and its batch norm; the same with the batch norm folded in under the same names.)"""
    random = np.random.default_rng(3)
    made = {"conv.weight": random.standard_normal((6, 3, 3, 3)), "bn.weight": random.uniform(0.5, 1.5, 6)}
    made |= {"bn.bias": random.standard_normal(6), "bn.running_mean": random.standard_normal(6)}
    made["bn.running_var"] = random.uniform(0.3, 2.0, 6)
    if bias:
        made["conv.bias"] = random.standard_normal(6)
    scale = made["bn.weight"] / np.sqrt(made["bn.running_var"] + eps)
    folded = {"conv.weight": made["conv.weight"] * scale[:, None, None, None]}
    folded["conv.bias"] = (made.get("conv.bias", 0) - made["bn.running_mean"]) * scale + made["bn.bias"]
    made["fc.weight"] = folded["fc.weight"] = random.standard_normal((4, 6))
    return tuple({name: array.astype(np.float32) for name, array in each.items()} for each in (made, folded))


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("order", [1, -1])
def test_a_batch_norm_that_is_folded_under_the_same_names_is_equal(xverify, tmp_path, bias, order):
    files = ("left.npz", "right.npz")[::order]
    for arrays, name in zip(convolution(bias), files):
        save_file(arrays, tmp_path / name)
    done = xverify("weights", "diff", tmp_path / "left.npz", tmp_path / "right.npz")
    assert done.code == 0, done.out
    assert "equal after folding batch norm bn" in done.out
    wrong = convolution(bias)[1]
    wrong["conv.weight"] = wrong["conv.weight"] * 1.01
    save_file(wrong, tmp_path / files[1])
    done = xverify("weights", "diff", tmp_path / "left.npz", tmp_path / "right.npz")
    assert done.code == 1, done.out


UNLIKE = {
    "of one axis": ({"x": X[0]}, "0/x has the shape"),
    "of another axis": ({"x": X[..., None]}, "and the input takes (2, 8)"),
    "of another size": ({"x": np.ones((2, 5), np.float32)}, "0/x has the shape (2, 5), and the input takes"),
    "of text": ({"x": np.full(X.shape, "a")}, "0/x is text, and the input takes float32"),
    "of fractions": ({"index": INDEX + 0.5}, "0/index is float64, and the input takes int32"),
    "of another name": ({"z": X}, "case 0 has z, which is no input. Inputs: "),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", UNLIKE)
def test_an_array_that_an_input_cannot_take_is_refused_in_one_line(xverify, tmp_path, model, kind):
    changed, says = UNLIKE[kind]
    np.savez(tmp_path / "x.npz", **{"x": X, "index": INDEX, **changed})
    refused(xverify("check", model, "--inputs", tmp_path / "x.npz"), "x.npz", says)
