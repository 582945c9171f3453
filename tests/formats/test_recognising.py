"""The parent's part: the format of a file is told by its content, and a file that could run code or reach out is refused."""

import json
import os
import pickle
import subprocess
import sys
import zipfile

import pytest

from xverify.errors import UsageError
from xverify.formats import _onnx_file as onnx_file
from xverify.framework import discovery, formats

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper  # noqa: E402


def small_onnx(path, location=None, **entries):
    """An ONNX file whose weight lies in another file, where a location is given."""
    weight = helper.make_tensor("w", TensorProto.FLOAT, [4], [1.0, 2.0, 3.0, 4.0])
    if location is not None:
        weight.ClearField("float_data")
        weight.data_location = TensorProto.EXTERNAL
        for key, value in {"location": location, **entries}.items():
            weight.external_data.add(key=key, value=str(value))
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [4]) for name in "xy")
    # The weight is within a branch of an If, where it is found as well.
    branch = helper.make_graph(
        [helper.make_node("Identity", ["w"], ["o"])], "b", [], [helper.make_tensor_value_info("o", 1, [4])], [weight]
    )
    condition = helper.make_tensor("c", TensorProto.BOOL, [], [True])
    nodes = [
        helper.make_node("If", ["c"], ["v"], then_branch=branch, else_branch=branch),
        helper.make_node("Add", ["x", "v"], ["y"]),
    ]
    graph = helper.make_graph(nodes, "g", [x], [y], [condition])
    onnx.save(helper.make_model(graph, ir_version=9), path)
    return path


def archive(path, members):
    with zipfile.ZipFile(path, "w") as file:
        for name, content in members.items():
            file.writestr(name, content if isinstance(content, (bytes, str)) else json.dumps(content))
    return path


def refused(path, **more):
    """The one line with which a file is refused."""
    with pytest.raises(UsageError) as raised:
        formats.examine(path, **more)
    assert "\n" not in str(raised.value)
    return str(raised.value)


TORCHSCRIPT = {"m/data.pkl": b"", "m/constants.pkl": b""}
PT2 = {"m/archive_format": "pt2", "m/models/model.json": {"graph": []}}
KERAS = {"metadata.json": {}, "config.json": {"class_name": "Functional"}}


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (KERAS, "keras"),
        (TORCHSCRIPT, "torchscript"),
        (PT2, "pt2"),
        ({"m/data.pkl": b""}, "torch-pickle"),
        (b"\x1c\0\0\0TFL3" + bytes(40), "tflite"),
        (b"\x89HDF\r\n\x1a\n" + bytes(40), "h5"),
        (b"\x3c\0\0\0ET12eh00" + bytes(40), "pte"),
        (b'<?xml version="1.0"?>\n<net name="g" version="11"></net>', "openvino-ir"),
    ],
)
@pytest.mark.parametrize("suffix", [".onnx", ".anything"])
def test_a_format_is_told_by_its_content_and_not_by_its_name(tmp_path, content, name, suffix):
    path = tmp_path / f"file{suffix}"
    if isinstance(content, dict):
        archive(path, content)
    else:
        path.write_bytes(content)
    assert formats.recognise(path).name == name


def test_onnx_and_savedmodel_are_told_by_their_fields(tmp_path):
    assert formats.recognise(small_onnx(tmp_path / "file.keras")).name == "onnx"
    assert formats.recognise(tmp_path / "file.keras", "openvino").name == "onnx-openvino"
    folder = tmp_path / "saved"
    folder.mkdir()
    (folder / "saved_model.pb").write_bytes(b"\x08\x01\x12\x02\x0a\x00")
    assert formats.recognise(folder).name == "savedmodel"
    assert "a part of a TensorFlow SavedModel; name its folder" in refused(folder / "saved_model.pb")
    assert "openvino runs no TensorFlow SavedModel here; --on takes tensorflow" in refused(folder, on="openvino")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "the file is empty"),
        (b"hello, this is text", "it begins with b'hello, this '. Known formats: "),
        (b"version https://git-lfs.github.com/spec/v1\noid", "Git LFS pointer"),
        (b"<!DOCTYPE html><html>", "a web page"),
        (b"PK\x03\x04" + bytes(50), "a zip archive, which is either damaged or truncated"),
        (b"\x93NUMPY\x01\x00", "a numpy array"),
        (bytes(100), "it begins with b'\\x00"),
    ],
)
def test_an_unknown_file_is_described(tmp_path, content, says):
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    assert says in refused(path)


def test_folders_pipes_and_absent_files(tmp_path):
    assert "no saved_model.pb" in refused(tmp_path)
    (tmp_path / "spec.py").write_text("")
    assert "a model folder, not a model file" in refused(tmp_path)
    assert "there is no such file" in refused(tmp_path / "absent.onnx")
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in refused(tmp_path / "pipe")


def test_a_truncated_onnx_file_is_named_as_one(tmp_path):
    whole = small_onnx(tmp_path / "whole.onnx").read_bytes()
    for size in (len(whole) - 1, len(whole) // 2, 30):
        (tmp_path / "part.onnx").write_bytes(whole[:size])
        assert "ONNX file is damaged or truncated" in refused(tmp_path / "part.onnx"), size


def test_external_data_is_found_only_within_the_folder(tmp_path):
    folder = tmp_path / "folder"
    (folder / "inside").mkdir(parents=True)
    (tmp_path / "secret").write_bytes(bytes(16))
    (folder / "inside" / "data").write_bytes(bytes(16))
    (folder / "link").symlink_to(tmp_path / "secret")
    (folder / "linked").symlink_to(tmp_path)
    path = folder / "model.onnx"
    assert formats.examine(small_onnx(path, "inside/data")).name == "onnx"
    assert onnx_file.externals(path)
    for location in ("../secret", "inside/../../secret", str(tmp_path / "secret"), "link", "linked/secret", ""):
        for on in ("", "openvino"):
            said = refused(small_onnx(path, location), on=on)
            assert f"lie in {location!r}, outside of the folder of the file" in said, location
    assert "there is no such file beside it" in refused(small_onnx(path, "absent"))
    said = refused(small_onnx(path, "inside/data", offset=8, length=16))
    assert "up to byte 24, and that file has 16 bytes: it is truncated" in said
    assert "damaged" in refused(small_onnx(path, "inside/data", offset="many"))
    # Trust is for code, and does not open other files.
    assert "outside of the folder" in refused(small_onnx(path, "../secret"), trust=True)


def test_operators_are_listed_without_a_package(tmp_path):
    assert onnx_file.operators(small_onnx(tmp_path / "m.onnx")) == {("", "If"), ("", "Add"), ("", "Identity")}


class Runs:
    def __reduce__(self):
        return os.system, ("touch ran",)


def node(target):
    return {**PT2, "m/models/model.json": {"nodes": [{"target": target}]}}


def sized(text):
    return {**PT2, "m/models/model.json": {"sizes": [{"as_expr": {"expr_str": text}}]}}


def layer(kind, **config):
    return {**KERAS, "config.json": {"config": {"layers": [{"class_name": kind, "config": config}]}}}


def structure(kind, context):
    """A .pt2 whose inputs have this structure."""
    inner = {"type": kind, "context": json.dumps(context), "children_spec": []}
    spec = json.dumps([1, {"type": "builtins.tuple", "context": "null", "children_spec": [inner]}])
    return {**PT2, "m/models/model.json": {"in_spec": spec}}


def function(name, module="builtins"):
    return {"class_name": "function", "config": name, "module": module, "registered_name": "function"}


RISKS = {
    "it holds the object 'get_file'": layer("Dense", activation=function("get_file", "keras.utils")),
    "it holds the object 'Anything'": layer("mine>Anything"),
    "a layer that opens another SavedModel": layer("mine>TFSMLayer"),
    "it holds 'Dense' of the module 'keras_hub.x'": {
        **KERAS,
        "config.json": {"class_name": "Dense", "module": "keras_hub.x", "config": {}},
    },
    "its weights are model.weights.npz": {**KERAS, "model.weights.npz": b""},
    "reads the file 'words.txt'": layer("mine>TextVectorization", vocabulary="words.txt"),
    "the structure": structure("collections.defaultdict", {"default_factory_module": "this"}),
    "may name modules, which PyTorch would import": structure("builtins.dict", [{"__enum__": True, "fqn": "this:A"}]),
    "its graph calls torch.ops.mine.anything.default": node("torch.ops.mine.anything.default"),
    "its graph calls torch.ops.aten.from_file": node("torch.ops.aten.from_file"),
    "its graph calls torch.ops.higher_order.triton_kernel_wrapper_mutation": node(
        "torch.ops.higher_order.triton_kernel_wrapper_mutation"
    ),
    "its graph calls torch.utils.cpp_extension.load": {
        **PT2,
        "m/models/model.json": {"nodes": [{"inputs": [{"arg": {"as_operator": "torch.utils.cpp_extension.load"}}]}]},
    },
    "a Lambda layer, which holds Python code": layer("Lambda"),
    "a Python lambda": layer("Dense", activation={"class_name": "__lambda__"}),
    "opens another SavedModel": layer("TFSMLayer"),
    "reads the file '/etc/passwd'": layer("StringLookup", vocabulary="/etc/passwd"),
    "calls torch.save, which may reach outside of the model": {
        **TORCHSCRIPT,
        "m/code/__torch__.py": "  torch.save(x, 'f')\n",
    },
    "calls ops.image.write_file": {**TORCHSCRIPT, "m/CODE/__torch__.py": "ops.image.write_file (x)"},
    "it is a pickle, which can run any code": {"m/data.pkl": pickle.dumps(Runs(), 2)},
    "compiled code, m/data/aotinductor/model/x.so": {**PT2, "m/data/aotinductor/model/x.so": b""},
    "a pickled object, m/data/constants/opaque_obj_0": {**PT2, "m/data/constants/opaque_obj_0": b""},
    "its pickle m/data/sample_inputs/model.pt calls posix.system": {
        **PT2,
        "m/data/sample_inputs/model.pt": pickle.dumps(Runs(), 2),
    },
    "its pickle w calls the operation STACK_GLOBAL": {
        **PT2,
        "m/data/weights/w": pickle.dumps(Runs(), 4),
        "m/data/weights/model_weights_config.json": {"config": {"w": {"path_name": "w", "use_pickle": True}}},
    },
    "its pickle m/data/sample_inputs/model.pt calls a second pickle": {
        **PT2,
        "m/data/sample_inputs/model.pt": pickle.dumps(1, 2) + pickle.dumps(Runs(), 2),
    },
    "its graph calls torch.os.system": node("torch.os.system"),
    "its graph calls torch.ops.load_library": node("torch.ops.load_library"),
    "its graph calls torch.ops.aten.add.__init__": node("torch.ops.aten.add.__init__"),
    "its graph calls _operator.methodcaller": node("_operator.methodcaller"),
    "'__import__(\"os\")' as an expression": sized('__import__("os")'),
    "'exec(s0)' as an expression": sized("exec(s0)"),
    "'s0.x' as an expression": sized("s0.x"),
    "'(eval)(s0)' as an expression": sized("(eval)(s0)"),
    "as an expression of sizes, which PyTorch would evaluate": sized("Symbol('exec(1)')"),
}


@pytest.mark.parametrize(("says", "members"), RISKS.items(), ids=RISKS)
def test_a_file_that_can_run_code_is_refused_without_trust(tmp_path, says, members):
    path = archive(tmp_path / "file", members)
    said = refused(path)
    assert says in said
    assert said.endswith("If you trust its author, say so with --trust")
    assert issubclass(formats.examine(path, trust=True), formats.ModelFile)


@pytest.mark.parametrize(
    "members",
    [
        node("torch.ops.aten.add.Tensor"),
        node("torch.ops.aten.__and__.Tensor"),
        node("_operator.getitem"),
        sized("Max(1, 2*s0 + Mod(s1, 3))"),
        sized("Mul(Integer(2), Symbol('s77', positive=True, integer=True), Float('0.5', precision=53))"),
        {**PT2, "m/data/sample_inputs/model.pt": pickle.dumps(((1.0, {"a": [2]}), None), 2)},
        layer("StringLookup", vocabulary=["a", "b"]),
        layer("Dense", activation=function("relu"), kernel_initializer={"class_name": "GlorotUniform", "config": {}}),
        {**KERAS, "config.json": {"class_name": "Functional", "compile_config": {"loss": function("my_loss", "mine")}}},
        structure("collections.OrderedDict", ["a", 1]),
        node("torch.ops.quantized_decomposed.quantize_per_tensor.default"),
        {**TORCHSCRIPT, "m/code/__torch__.py": "def saved(x): return torch.add(x, 1)"},
    ],
)
def test_an_ordinary_file_needs_no_trust(tmp_path, members):
    formats.examine(archive(tmp_path / "file", members))


def test_a_name_that_occurs_twice_in_an_archive_is_a_risk(tmp_path):
    with zipfile.ZipFile(tmp_path / "m.pt2", "w") as file:
        for name in [*PT2, "m/models/model.json"]:
            with pytest.warns(UserWarning, match="Duplicate") if name in file.namelist() else open(os.devnull):
                file.writestr(name, "{}")
    assert "it holds 'm/models/model.json' twice" in refused(tmp_path / "m.pt2")


def test_graphs_of_savedmodels_that_call_python_or_write_files(tmp_path):
    (tmp_path / "variables").mkdir()
    graph = tmp_path / "saved_model.pb"
    graph.write_bytes(b"\x08\x01\x12\x0f\x12\x0d\x0a\x0b\x12\x09WriteFile")
    assert "its graph has the operator WriteFile, which writes files" in refused(tmp_path)
    graph.write_bytes(b"\x08\x01\x12\x02\x0a")
    assert "damaged or truncated" in refused(tmp_path)
    graph.write_bytes(b"\x08\x01\x12\x00")
    (tmp_path / "variables" / "variables.index").symlink_to("/etc/hostname")
    assert "a link that leads out of the folder" in refused(tmp_path)


def test_openvino_ir_without_its_weights(tmp_path):
    path = tmp_path / "m.xml"
    path.write_text('<net name="g" version="11"><data offset="8" size="24"/></net>')
    assert "lie in m.bin, which is not beside it" in refused(path)
    (tmp_path / "m.bin").write_bytes(bytes(31))
    assert "up to byte 32 of m.bin, which has 31 bytes: it is truncated" in refused(path)
    path.write_text('<net name="g" version="11"><layers>')
    assert "truncated: it does not end with </net>" in refused(path)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("<a>" * 300_000 + "</a>" * 300_000, "are nested more than 100 deep"),
        ("<layers>" + "<a x='1'><b/>" * 100 + "</a>" * 100 + "</layers>", "are nested more than 100 deep"),
        ("<layers></edges>", "is damaged: mismatched tag"),
    ],
)
def test_an_openvino_ir_that_is_nested_too_deep_or_damaged(xverify, tmp_path, text, says):
    path = tmp_path / "m.xml"
    path.with_suffix(".bin").touch()
    path.write_text(f'<net name="g" version="11">{text}</net>')
    assert says in refused(path)
    done = xverify("check", path)
    assert (done.code, len(done.err.splitlines()), says in done.err) == (2, 1, True)
    path.write_text('<net name="g" version="11">' + "<a>" * 98 + "</a>" * 98 + "</net>")
    assert formats.examine(path).name == "openvino-ir"


def test_an_openvino_ir_with_a_type_of_its_own(tmp_path):
    path = tmp_path / "m.xml"
    path.write_text('<net name="g" version="11"><!DOCTYPE net [<!ENTITY a "a">]>&a;</net>')
    assert "is damaged" in refused(path)


@pytest.mark.parametrize(
    "members",
    [
        {**KERAS, "config.json": '{"config": ' + "[" * 300_000 + "]" * 300_000 + "}"},
        {**PT2, "m/models/model.json": '{"graph": ' + "[" * 300_000 + "]" * 300_000 + "}"},
        {**PT2, "m/models/model.json": {"in_spec": "[" * 300_000 + "]" * 300_000}},
    ],
)
def test_a_text_that_is_nested_too_deep_is_refused(tmp_path, members):
    assert "recursion" in refused(archive(tmp_path / "file", members))


def test_names_of_formats_and_frameworks_differ_and_say_what_to_install():
    assert not set(formats.files()) & set(discovery.files())
    for name, form in formats.load_all().items():
        assert form.name == name
        assert form.title
        assert form.runtime
        assert form.extra in EXTRAS or form.isolated
    on_request = [name for name, form in formats.load_all().items() if form.on_request]
    assert on_request == ["onnx-openvino", "onnx-wasm", "onnx-webgpu"]


EXTRAS = {"onnxruntime", "openvino", "tensorflow", "litert", "torch"}


def test_looking_at_files_imports_no_framework(tmp_path):
    small_onnx(tmp_path / "m.onnx")
    archive(tmp_path / "m.pt2", PT2)
    archive(tmp_path / "m.keras", KERAS)
    program = (
        "import sys; from pathlib import Path; from xverify.framework import formats\n"
        f"for name in ('m.onnx', 'm.pt2', 'm.keras'): formats.examine(Path({str(tmp_path)!r}) / name)\n"
        "heavy = {'torch', 'tensorflow', 'keras', 'onnx', 'onnxruntime', 'openvino', 'ai_edge_litert', 'h5py'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
