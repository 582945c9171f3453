"""Files of every format, made by their frameworks, opened in real workers: signatures, outputs, float64, and what is refused."""

import numpy as np
import pytest
from helpers.modelfiles import FILES, Opened, expected, file, inputs

from xverify.errors import Failed, Unsupported, UsageError
from xverify.framework import formats

pytestmark = pytest.mark.slow
SHAPELESS = {"torchscript"}
# What a format makes of the names of the inputs and outputs.
RENAMED = {}


def runtime(name):
    return formats.load(name).runtime


@pytest.mark.parametrize("name", FILES)
def test_a_file_is_opened_by_its_signature_and_computes_what_it_holds(tmp_path, name):
    with Opened(file(*FILES[name]), tmp_path / "worker", runtime(name)) as opened:
        assert opened.form.name == name
        opened.build()
        signature = opened.signature()
        assert {tensor.name for tensor in signature.inputs} == {"x", "scale"}
        assert {tensor.name for tensor in signature.outputs} == {"logits", "probabilities"}
        assert {tensor.dtype for tensor in (*signature.inputs, *signature.outputs)} == {"float32"}
        for tensor in (*signature.inputs, *signature.outputs):
            if name in SHAPELESS:
                assert tensor.shape is None
            else:
                batch, *rest = tensor.shape
                assert rest == [4 if tensor.name == "x" else 3]
                assert batch is None or isinstance(batch, str)
        arrays = inputs()
        for mode in opened.form.modes:
            outputs = opened.compute(arrays, mode=mode)
            assert set(outputs) == {f"{case}/{out}" for case in range(2) for out in ("logits", "probabilities")}
            loose = mode == "default"  # OpenVINO may choose bfloat16
            for case in range(2):
                for out, value in expected(arrays[f"{case}/x"], arrays[f"{case}/scale"]).items():
                    found = outputs[f"{case}/{out}"]
                    assert found.dtype == np.float32
                    np.testing.assert_allclose(found, value, rtol=0.05 if loose else 1e-5, atol=0.1 if loose else 1e-6)


@pytest.mark.parametrize("path", ["model.torchscript", "traced.torchscript", "model.pt2"])
def test_a_file_of_torch_computes_in_float64(tmp_path, path):
    with Opened(file("TORCH", path), tmp_path / "worker") as opened:
        opened.build()
        opened.signature()
        arrays = inputs(cases=1)
        outputs = list(opened.compute(arrays, float64=True).values())
        # The other precision still works afterwards.
        assert {array.dtype for array in opened.compute(arrays).values()} == {np.dtype(np.float32)}
    for found, value in zip(outputs, expected(arrays["0/x"], arrays["0/scale"]).values()):
        assert found.dtype == np.float64
        np.testing.assert_allclose(found, value, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("name", ["onnx", "savedmodel", "keras"])
def test_a_runtime_without_float64_says_so(tmp_path, name):
    with Opened(file(*FILES[name]), tmp_path / "worker") as opened:
        opened.build()
        with pytest.raises(Unsupported, match="precision of the file"):
            opened.compute(inputs(), float64=True)


def test_a_savedmodel_with_slots_of_an_optimizer_is_opened_by_the_older_loader(tmp_path):
    with Opened(file("TENSORFLOW", "with-optimizer"), tmp_path / "worker") as opened:
        opened.build()
        assert [tensor.name for tensor in opened.signature().outputs] == ["logits", "probabilities"]
        assert "add_slot" not in opened.worker.log.last_line()
        arrays = inputs(cases=1)
        signature = opened.signature()
        outputs = opened.compute(arrays)
    assert signature.inputs[1].shape == (None, 4)
    for name, value in expected(arrays["0/x"], arrays["0/scale"]).items():
        np.testing.assert_allclose(outputs[f"0/{name}"], value, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("path", "other"), [("saved", "serving_default"), ("two.tflite", "serve")])
def test_another_signature_of_the_file_is_chosen_by_name(tmp_path, path, other):
    with Opened(file("TENSORFLOW", path), tmp_path / "worker", signature="double") as opened:
        opened.build()
        signature = opened.signature()
        assert (signature.name, signature.others) == ("double", (other,))
        outputs = opened.compute({"0/x": np.ones((2, 4), np.float32)})
    assert [tensor.name for tensor in signature.outputs] == ["twice"]
    np.testing.assert_array_equal(outputs["0/twice"], np.full((2, 4), 2))
    absent = Opened(file("TENSORFLOW", path), tmp_path / "other", signature="absent")
    with absent as opened, pytest.raises(Failed, match=r"no signature 'absent'; its signatures are .*double"):
        opened.build()


@pytest.mark.parametrize("path", ["external.onnx", "half.onnx"])
def test_external_data_and_half_precision(tmp_path, path):
    with Opened(file("ONNX", path), tmp_path / "worker") as opened:
        opened.build()
        half = path.startswith("half")
        assert {tensor.dtype for tensor in opened.signature().inputs} == {"float16" if half else "float32"}
        arrays = inputs(cases=1)
        found = opened.compute(arrays)["0/logits"]
    np.testing.assert_allclose(found, expected(arrays["0/x"], arrays["0/scale"])["logits"], rtol=0.02, atol=0.02)
    assert found.dtype == (np.float16 if half else np.float32)


@pytest.mark.parametrize("on", ["onnxruntime", "openvino"])
def test_bfloat16_travels_as_float32(tmp_path, on):
    with Opened(file("ONNX", "bfloat16.onnx"), tmp_path / "worker", on) as opened:
        opened.build()
        assert opened.signature().inputs[0].dtype == "bfloat16"
        values = np.array([[1.5, -3.0], [1.0078125, 2.0**100]], np.float32)
        outputs = opened.compute({"0/x": values})
    np.testing.assert_array_equal(outputs["0/y"], 2 * values)
    assert outputs["0/y"].dtype == np.float32


def test_other_dtypes_are_in_the_signature_and_strings_are_refused_clearly(tmp_path):
    with Opened(file("ONNX", "kinds.onnx"), tmp_path / "worker") as opened:
        opened.build()
        assert [tensor.dtype for tensor in opened.signature().inputs] == ["int32", "bool", "string"]
        given = {"0/i": np.array([1, 2]), "0/b": np.array([True, False]), "0/s": np.array([1, 2])}
        with pytest.raises(Unsupported, match="input 's' takes strings"):
            opened.compute(given)
        with pytest.raises(Failed, match="input 'i' takes int32, and the array that was given is float64"):
            opened.compute({**given, "0/i": np.array([1.5, 2])})


@pytest.mark.parametrize(
    ("path", "on", "says"),
    [
        ("unknown.onnx", "onnxruntime", "operator Foo does not exist in opset 17"),
        ("unknown.onnx", "openvino", "operators that it does not have: Foo-17"),
        ("newer.onnx", "onnxruntime", "opset 99 of ai.onnx is newer than"),
    ],
)
def test_an_operator_or_opset_that_a_runtime_lacks_is_named(tmp_path, path, on, says):
    def call(opened):
        opened.build()
        opened.compute({"0/x": np.ones(2, np.float32)})

    with Opened(file("ONNX", path), tmp_path / "worker", on) as opened, pytest.raises(Unsupported) as raised:
        call(opened)
    assert says in str(raised.value)
    assert str(raised.value).startswith(f"{path}: {on} cannot")
    assert "\n" not in str(raised.value)


def test_more_than_two_gib_of_external_data(tmp_path):
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    rows = 2**31 // 4 // 64 + 10
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[rows, 64], data_location=TensorProto.EXTERNAL)
    for key, value in (("location", "table.data"), ("offset", "0"), ("length", str(rows * 256))):
        table.external_data.add(key=key, value=value)
    ids = helper.make_tensor_value_info("ids", TensorProto.INT64, ["n"])
    rows_out = helper.make_tensor_value_info("rows", TensorProto.FLOAT, ["n", 64])
    graph = helper.make_graph([helper.make_node("Gather", ["table", "ids"], ["rows"])], "g", [ids], [rows_out], [table])
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), tmp_path / "big.onnx"
    )
    with (tmp_path / "table.data").open("wb") as data:
        data.seek((rows - 1) * 256)
        data.write(np.arange(64, dtype=np.float32).tobytes())
    with Opened(tmp_path / "big.onnx", tmp_path / "worker") as opened:
        opened.build()
        outputs = opened.compute({"0/ids": np.array([rows - 1, 0])})
    np.testing.assert_array_equal(outputs["0/rows"], [np.arange(64), np.zeros(64)])


@pytest.mark.parametrize(
    ("maker", "path", "says"),
    [
        ("TENSORFLOW", "code.keras", "a Lambda layer"),
        ("TENSORFLOW", "code.h5", "a Lambda layer"),
        ("TENSORFLOW", "python", "EagerPyFunc|PyFunc"),
        ("TORCH", "writes.torchscript", "calls torch.save"),
        ("TORCH", "pickled.pt", "it is a pickle"),
        ("TORCH", "legacy.pt", "it is a pickle"),
    ],
)
def test_a_file_that_holds_code_is_opened_with_trust_only(tmp_path, maker, path, says):
    source = file(maker, path)
    with pytest.raises(UsageError, match=f"({says}).*--trust"):
        formats.examine(source)
    assert formats.examine(source, trust=True) is formats.recognise(source)
    with Opened(source, tmp_path / "worker") as opened:
        with pytest.raises(Failed, match=f"({says}).*--trust"):
            opened.build()
        opened.options["trust"] = True
        if path == "python":
            return  # its Python is not in the file, so only a process that has it can call it
        opened.build()
        names = [tensor.name for tensor in opened.signature().inputs]
        outputs = opened.compute({f"0/{name}": np.ones((2, 4), np.float32) for name in names})
    assert len(outputs) == 1


@pytest.mark.parametrize(
    ("maker", "path", "says"),
    [
        ("TENSORFLOW", "only.weights.h5", "only.weights.h5: .* holds weights or other arrays, and no model"),
        ("TORCH", "weights.pt", "weights.pt: .* holds a OrderedDict, and no module"),
    ],
)
def test_weights_alone_are_no_model(tmp_path, maker, path, says):
    opened = Opened(file(maker, path), tmp_path / "worker", trust=True)
    with opened, pytest.raises(Failed, match=says):
        opened.build()
