"""Quantised OpenVINO files are computed again in float64: right files are EQUAL, and a wrong kernel or weight is found."""

import json

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")
pytest.importorskip("openvino")

import openvino
from conftest import cli
from helpers.marks import needs_vnni
from openvino import opset13 as ops

pytestmark = pytest.mark.slow

SHAPE = (2, 4, 8, 8)
# Runs another file than the one it is given, where one lies in the folder ``wrong``.
PLUGIN = """
import importlib

Right = importlib.import_module("xverify.formats.openvino-ir").Adapter


class Adapter(Right):
    name = runtime = "wrongkernels"
    on_request = True
    wrong = None

    def open(self, path, options, float64):
        wrong = path.parent / "wrong" / path.name
        self.wrong = super().open(wrong, options, float64) if wrong.exists() else None
        return super().open(path, options, float64)

    def compile(self, model, properties):
        return super().compile(self.wrong or model, properties)

    def node_values(self, model, inputs, folder, graph=None):
        return super().node_values(self.wrong or model, inputs, folder, graph)
"""


class Maker:
    """Draws weights. wrong: factor of the slope of an activation, of the scale of the weights, and of a range."""

    def __init__(self, slope=1.0, scale=1.0, width=1.0):
        self.slope, self.scale, self.width = slope, scale, width
        self.random = np.random.default_rng(0)

    def drawn(self, *shape):
        return (self.random.standard_normal(shape) * 0.5).astype("f")

    def weights(self, *shape, scale=1.0, offset=0):
        """Stored whole numbers, with a scale for each channel, and perhaps a zero point."""
        steps = np.float32(scale) * np.abs(self.drawn(shape[0], *[1] * (len(shape) - 1)) + 2) / 100
        numbers = self.random.integers(-127, 128, shape).astype(np.int8)
        whole = ops.convert(ops.constant(numbers), "f32")
        if offset:
            whole = ops.subtract(whole, ops.convert(ops.constant(np.full(steps.shape, offset, np.int8)), "f32"))
        return ops.multiply(whole, ops.constant(steps))

    def steps(self, x, low, high, shape=(), levels=256):
        """FakeQuantize with a zero among its steps."""
        scale = (high - low) / (levels - 1)
        low = np.round(low / scale) * scale
        ends = [ops.constant(np.full(shape, end, np.float32)) for end in (low, low + scale * (levels - 1))]
        return ops.fake_quantize(x, *ends, *ends, levels)

    def images(self):
        x = ops.parameter(SHAPE, np.float32, name="x")
        quantised = self.steps(x, -4.0, 4.0)
        a = ops.convolution(quantised, self.weights(8, 4, 3, 3, scale=self.scale), [1, 1], [1, 1], [1, 1], [1, 1])
        a = ops.relu(ops.add(a, ops.constant(self.drawn(1, 8, 1, 1))))
        channels = self.steps(a, 0.0, 30.0 * self.width, (1, 8, 1, 1), 255)
        b = ops.group_convolution(channels, self.weights(8, 1, 1, 3, 3), [1, 1], [0, 0], [0, 0], [1, 1], "same_upper")
        grouped = ops.group_convolution(b, self.weights(2, 3, 4, 3, 3), [2, 2], [1, 1], [1, 1], [1, 1])
        parts = ops.variadic_split(ops.hswish(b), 1, np.array([2, 6])).outputs()
        joined = ops.concat([ops.elu(ops.multiply(parts[0], np.float32(0.1)), 1.0), ops.clamp(parts[1], -1.0, 6.0)], 1)
        shuffled = ops.shuffle_channels(joined, 1, 2)
        pooled = ops.max_pool(shuffled, [2, 2], [1, 1], [1, 1], [0, 0], [3, 3]).output(0)
        mean = ops.avg_pool(shuffled, [2, 2], [1, 1], [0, 0], [3, 3], True)
        rounded_up = ops.max_pool(shuffled, [2, 2], [1, 1], [0, 0], [0, 0], [3, 3], "ceil").output(0)
        sliced = ops.slice(
            ops.concat([ops.add(pooled, mean), rounded_up], 3),
            np.array([1]),
            np.array([7]),
            np.array([2]),
            np.array([1]),
        )
        gate = ops.hard_sigmoid(ops.reduce_mean(grouped, np.array([2, 3]), True), np.float32(0.2), np.float32(0.5))
        flat = ops.reshape(ops.multiply(grouped, gate), np.array([2, -1]), False)
        sizes = ops.gather(ops.shape_of(flat), np.array([1]), np.array(0))
        flat = ops.add(flat, ops.convert(sizes, "f32"))
        made = ops.matmul(self.steps(flat, -80.0, 80.0), self.weights(5, 96, offset=3), False, True)
        return openvino.Model([ops.squeeze(ops.unsqueeze(made, np.array([1])), np.array([1])), sliced], [x], "images")

    def vectors(self):
        x = ops.parameter((3, 6, 8), np.float32, name="x")
        left = ops.matmul(self.steps(x, -4.0, 4.0), self.weights(8, 8), False, True)
        h = ops.transpose(ops.swish(left, np.float32(1.5 * self.slope)), np.array([0, 2, 1]))
        values = [ops.gelu(h, "tanh"), ops.gelu(h, "erf"), ops.tanh(h), ops.softmax(h, 1), ops.hsigmoid(h)]
        values += [
            ops.softplus(h),
            ops.prelu(h, ops.constant(np.float32(0.2))),
            ops.sqrt(ops.exp(ops.negative(ops.abs(h)))),
            ops.mvn(h, np.array([-1]), True, 1e-3, "inside_sqrt"),
            ops.transpose(ops.scaled_dot_product_attention(left, left, left), np.array([0, 2, 1])),
            ops.scaled_dot_product_attention(h, h, h, ops.constant(self.drawn(8, 8)), ops.constant(np.float32(0.3))),
        ]
        summed = values[0]
        for each in values[1:]:
            summed = ops.add(summed, each)
        pair = ops.split(summed, 1, 2).outputs()
        summed = ops.subtract(
            ops.maximum(pair[0], np.float32(0.3)), ops.divide(ops.minimum(pair[1], np.float32(2)), np.float32(3))
        )
        square = ops.reduce_sum(ops.power(summed, np.float32(2)), np.array([2]), False)
        ends = ops.add(ops.reduce_max(summed, np.array([2])), ops.reduce_min(summed, np.array([2])))
        return openvino.Model([ops.add(square, ends), ops.sigmoid(summed)], [x], "vectors")


MODELS = ("images", "vectors")


def saved(folder, name, **wrong):
    folder.mkdir(exist_ok=True)
    model = getattr(Maker(**wrong), name)()
    for place, node in enumerate(model.get_ordered_ops()):
        if node.get_type_name() != "Parameter":
            node.set_friendly_name(f"{node.get_type_name()}_{place}")
    for port in model.outputs:
        port.set_names({port.get_node().input_value(0).get_node().get_friendly_name()})
    openvino.save_model(model, folder / f"{name}.xml", compress_to_fp16=False)
    return folder / f"{name}.xml"


def rows(folder, *arguments):
    done = cli(folder, "check", *arguments, "--json", folder / "r.json", timeout=900)
    found = json.loads((folder / "r.json").read_text())["rows"]
    return done, {(row["subject"].removesuffix(".xml"), row["task"]): row for row in found}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    folder = tmp_path_factory.mktemp("right")
    return rows(folder, *(saved(folder, name) for name in MODELS))


@pytest.mark.parametrize("name", [pytest.param(each, marks=needs_vnni) for each in MODELS])
def test_every_operator_of_a_right_file_is_compared_and_equal(right, name):
    done, found = right
    error = found[name, "runtime"]["error"]
    assert error["verdict"] in ("IDENTICAL", "EQUAL"), done.out + done.err
    layers = error["layers"]
    assert layers["compared"] == layers["known"], layers["missing"]
    assert {each["verdict"] for each in layers["layers"]} == {"EQUAL"}


def test_the_files_have_every_operator_that_is_translated(right):
    from xverify.formats._openvino_operators import TABLE

    seen = {layer["kind"] for row in right[1].values() for layer in row["error"]["layers"]["layers"]}
    assert sorted(set(TABLE) - seen - {"Ceiling", "Erf", "Floor", "Log"}) == []


WRONG = {"slope": ("vectors", "Swish"), "width": ("images", "FakeQuantize"), "scale": ("images", "Multiply")}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_named(tmp_path, monkeypatch, name):
    model, kind = WRONG[name]
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "wrongkernels.py").write_text(PLUGIN)
    file = saved(tmp_path, model)
    saved(tmp_path / "wrong", model, **{name: 1.05})
    monkeypatch.setenv("XVERIFY_FORMATS", str(tmp_path / "formats"))
    done, found = rows(tmp_path, file, "--on", "wrongkernels")
    error = found[model, "runtime"]["error"]
    assert (done.code, error["verdict"]) == (1, "DIFFERENT"), done.out + done.err
    faulty = [each for each in error["layers"]["layers"] if each["verdict"] in ("DRIFT", "DIFFERENT")]
    assert kind in [each["kind"] for each in faulty]
    assert faulty[0]["layer"] in error["reason"]


def test_a_wrong_weight_of_a_file_is_found_against_its_reference(tmp_path):
    reference = saved(tmp_path / "reference", "images")
    done, found = rows(tmp_path, saved(tmp_path / "wrong", "images", scale=1.5), "--against", reference)
    assert (done.code, found["images", "conversion"]["error"]["verdict"]) == (1, "DIFFERENT"), done.out + done.err


def test_a_file_with_nothing_quantised_has_no_graph(tmp_path):
    x = ops.parameter((2, 4), np.float32, name="x")
    openvino.save_model(openvino.Model([ops.tanh(x)], [x], "plain"), tmp_path / "plain.xml", compress_to_fp16=False)
    _, found = rows(tmp_path, tmp_path / "plain.xml")
    assert "there is no evaluation of this OpenVINO IR in float64" in found["plain", "runtime"]["error"]["reason"]
