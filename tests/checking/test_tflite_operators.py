"""The operators of TensorFlow Lite files are computed again in float64: right files are EQUAL, and a wrong kernel is named."""

import json
import os
import subprocess
import sys

import pytest

pytest.importorskip("onnx")
pytest.importorskip("torch")
pytest.importorskip("tensorflow")
pytest.importorskip("ai_edge_litert")

from conftest import cli

pytestmark = pytest.mark.slow

MAKER = """
import sys, os, numpy as np, tensorflow as tf
os.chdir(sys.argv[1])
random, L = np.random.default_rng(0), tf.keras.layers

def drawn(*shape):
    return tf.constant((random.standard_normal(shape) * 0.5).astype("f"))

def write(name, call, shape, whole=None):
    function = tf.function(call, input_signature=[tf.TensorSpec(shape, tf.float32, name="x")], autograph=False)
    held = tf.lite.TFLiteConverter.from_concrete_functions([function.get_concrete_function()], tf.Module())
    if whole:
        held.optimizations, held.representative_dataset = [tf.lite.Optimize.DEFAULT], whole
    open(name + ".tflite", "wb").write(held.convert())

def normal(shape):
    return lambda: ([random.standard_normal(shape).astype("f")] for _ in range(30))

def images():
    nn, raw = tf.nn, tf.raw_ops
    kernels = [drawn(3, 3, 4, 8), drawn(3, 3, 8, 2), drawn(3, 3, 16, 4), drawn(3, 3, 6, 4), drawn(3, 3, 2, 8), drawn(8)]
    def call(x):
        a = nn.relu6(nn.bias_add(nn.conv2d(x, kernels[0], 2, "SAME"), kernels[5]))
        b = nn.depthwise_conv2d(a, kernels[1], [1, 1, 1, 1], "SAME")
        c = nn.leaky_relu(nn.conv2d(b, kernels[2], 1, "SAME", dilations=2), 0.1)
        d = nn.conv2d_transpose(c, kernels[3], [2, 10, 14, 6], 2, "SAME")
        e = nn.conv2d(a, kernels[4], 1, "SAME")
        pools = [nn.avg_pool2d(e, 3, 2, "SAME"), nn.max_pool2d(e, 3, 2, "SAME")]
        sizes = tf.constant([10, 14])
        resized = [raw.ResizeBilinear(images=pools[0], size=sizes, half_pixel_centers=True),
                   raw.ResizeBilinear(images=pools[1], size=sizes, align_corners=True),
                   raw.ResizeNearestNeighbor(images=pools[0], size=sizes, half_pixel_centers=True),
                   raw.ResizeNearestNeighbor(images=pools[1], size=sizes)]
        padded = tf.pad(tf.concat(resized, -1), [[0, 0], [1, 2], [2, 1], [0, 0]], "REFLECT")
        blocks = nn.depth_to_space(nn.space_to_depth(padded[:, :12, :16], 2) * 2.0, 2)
        return {"d": tf.pad(d, [[0, 0], [1, 1], [0, 2], [0, 0]], constant_values=1.5), "blocks": tf.nn.softmax(blocks)}
    return call

def vectors():
    w, v, slopes = drawn(12, 10), drawn(3, 10, 6), drawn(10)
    def call(x):
        h = tf.matmul(tf.reshape(x, [-1, 12]), w) + slopes
        h = tf.reshape(h, [3, 4, 10])
        p = tf.nn.relu(h) + (-slopes) * tf.nn.relu(-h)
        b = tf.tanh(tf.matmul(p, v)) + tf.sigmoid(tf.matmul(p, tf.transpose(v, [0, 2, 1]), transpose_b=True))
        positive = tf.abs(b) + 0.5
        many = [tf.exp(-b), tf.math.log(positive), tf.sqrt(positive), tf.math.rsqrt(positive), tf.sin(b), tf.cos(b), tf.square(b),
                tf.math.squared_difference(b, positive), tf.floor(3 * b), tf.round(3 * b), tf.math.ceil(b), -b, tf.nn.elu(b),
                tf.nn.gelu(b, True), tf.maximum(b, 0.1), tf.minimum(b, 0.2), tf.pow(positive, 1.5), tf.sign(b),
                b * tf.nn.relu6(b + 3.0) / 6.0, tf.math.floordiv(b, 0.3), b / positive, tf.nn.log_softmax(b),
                tf.nn.l2_normalize(b, -1), tf.cumsum(b, 1), tf.clip_by_value(b, -1.0, 1.0), tf.math.add_n([b, positive, b])]
        one = tf.concat(many, -1)
        top, places = tf.math.top_k(p, 4)
        sums = [tf.reduce_mean(one, [1, 2]), tf.reduce_sum(one, [1, 2]), tf.reduce_max(one, [1, 2]), tf.reduce_min(one, [1, 2]),
                tf.reduce_prod(one[:, :, :5], [1, 2])]
        best = tf.argmax(tf.reverse(h, [-1]), -1, tf.int32)
        return {"one": one, "top": top, "places": places, "best": best, "sums": tf.stack(sums)}
    return call

def moves(symmetric=False):
    table, cube = drawn(9, 5), drawn(2, 2, 2, 1, 3)
    def call(x):
        a, b, c = tf.split(tf.transpose(x, [0, 2, 1]), [2, 3, 1], 1)
        parts = tf.unstack(x, axis=1)
        rows = tf.cast(tf.math.floormod(tf.cast(tf.abs(x) * 4, tf.int32), 9), tf.int32)
        looked = tf.gather(table, rows[:, 0])
        above = tf.where(tf.greater(x, 0.2), x, tf.zeros_like(x)) + tf.cast(tf.logical_or(x < -0.5, tf.not_equal(x, x)), tf.float32)
        strided = x[:, ::2, 1] + x[:, -1:0:-2, -2]
        out = {"b": tf.concat([b, tf.tile(c, [1, 2, 1])], 1), "parts": tf.stack(parts[::-1], 2), "looked": looked, "above": above,
               "strided": strided, "reversed": tf.reverse(x, [1]), "wide": tf.broadcast_to(x[:, None, :1], [3, 2, 4, 6]),
               "nd": tf.gather_nd(x, [[0, 1], [2, 3]]), "part": tf.slice(x, [0, 1, 2], [-1, 2, 3]), "sum": a[:, 0] + 1.0}
        mask = tf.logical_and(tf.logical_not(x >= 0.1), tf.logical_or(x <= -0.1, tf.equal(x, 0.5)))
        out |= {"mask": tf.cast(mask, tf.float32), "less": x - tf.reverse(x, [1]), "relu6": tf.nn.relu6(x),
                "halves": tf.concat(tf.split(x, 2, 2)[::-1], 2), "least": tf.argmin(x, -1, tf.int32),
                "padded": tf.pad(x, [[0, 0], [1, 0], [0, 2]]),
                "volume": tf.nn.conv3d(tf.reshape(x, [1, 3, 4, 6, 1]), cube, [1, 1, 1, 1, 1], "SAME")}
        square = tf.transpose(x, [1, 0, 2])[:3]  # the condition of a Select is along the first of two axes of one size
        out["selected"] = tf.raw_ops.Select(condition=square[:, 0, 0] > 0, x=square[:, :, 1], y=square[:, :, 2])
        out["pad"] = tf.pad(x, [[0, 0], [1, 1], [0, 0]], "SYMMETRIC") if symmetric else x * 2.0
        return out
    return call

# A mean over images whose zero point is 0.43 steps of the output off a whole number.
def means():
    def call(x):
        return {"mean": tf.reduce_mean(tf.nn.relu(x), [1, 2], keepdims=True)}
    def cases():
        for _ in range(10):
            x = random.uniform(-1, 1, [2, 2, 2, 64]).astype("f")
            x[0, :, :, 0] = [[4, 4], [0.5488, 0]]
            yield [x]
    write("means", call, [2, 2, 2, 64], cases)

write("images", images(), [2, 10, 14, 4])
write("whole", images(), [2, 10, 14, 4], normal([2, 10, 14, 4]))
means()
write("vectors", vectors(), [3, 4, 12])
write("moves", moves(), [3, 4, 6])
write("symmetric", moves(True), [3, 4, 6])

def folded(slope=0.1, scale=1.0):
    x = tf.keras.Input((12, 12, 4), name="x", batch_size=2)
    h = L.BatchNormalization(name="bn")(L.DepthwiseConv2D(3, depth_multiplier=2, name="dw")(x))
    h = L.SeparableConv2D(5, 3, name="sep")(L.LeakyReLU(negative_slope=slope, name="act")(h))
    model = tf.keras.Model(x, L.Dense(3, name="fc")(L.GlobalAveragePooling2D(name="gap")(L.BatchNormalization(name="bn2")(h))))
    draw = np.random.default_rng(1)
    arrays = [draw.uniform(0.5, 2, w.shape) if "variance" in w.path else draw.standard_normal(w.shape) * 0.5 for w in model.weights]
    model.set_weights([(a * scale if w.path == "dw/kernel" else a).astype("f") for w, a in zip(model.weights, arrays)])
    return model
folded().save("folded.keras")
for name, settings in {"folded": {}, "folded_slope": {"slope": 0.3}, "folded_scale": {"scale": 1.01}}.items():
    open(name + ".tflite", "wb").write(tf.lite.TFLiteConverter.from_keras_model(folded(**settings)).convert())
"""
FILES = ("images", "vectors", "moves", "whole", "means")
# A runtime with a wrong kernel: it computes another file than the one that it is given, where one lies in the folder ``wrong``.
PLUGIN = """
from xverify.formats.tflite import Adapter as Right

class Adapter(Right):
    name = runtime = "wrongkernels"
    on_request = True

    def interpreter(self, path, kernels, **more):
        wrong = path.parent / "wrong" / path.name
        return super().interpreter(wrong if wrong.exists() else path, kernels, **more)
"""


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lite")
    (folder / "make.py").write_text(MAKER)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "TF_CPP_MIN_LOG_LEVEL": "2", "KERAS_BACKEND": "tensorflow"}
    command = [sys.executable, str(folder / "make.py"), str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return folder


def changed(file, target, kind, **settings):
    """Write a copy of a file in which the first operator of a kind has other settings."""
    import flatbuffers
    from ai_edge_litert import schema_py_generated as schema

    model = schema.ModelT.InitFromPackedBuf(file.read_bytes(), 0)
    number = getattr(schema.BuiltinOperator, kind)
    codes = [max(each.builtinCode, each.deprecatedBuiltinCode) for each in model.operatorCodes]
    operator = next(each for each in model.subgraphs[0].operators if codes[each.opcodeIndex] == number)
    vars(operator.builtinOptions).update(settings)
    builder = flatbuffers.Builder(0)
    builder.Finish(model.Pack(builder), b"TFL3")
    target.write_bytes(builder.Output())


def rows(folder, *arguments):
    done = cli(folder, "check", *arguments, "--json", folder / "r.json", timeout=900)
    found = json.loads((folder / "r.json").read_text())["rows"]
    return done, {(row["subject"].removesuffix(".tflite"), row["task"]): row for row in found}


@pytest.fixture(scope="module")
def right(made, tmp_path_factory):
    return rows(tmp_path_factory.mktemp("right"), *(made / f"{name}.tflite" for name in FILES))


@pytest.mark.parametrize("name", FILES)
def test_every_operator_of_a_right_file_is_compared_and_equal(right, name):
    done, found = right
    error = found[name, "runtime"]["error"]
    # In the smallest values of the softmax in 8 bits, half a step is all there is.
    assert error["verdict"] in ("IDENTICAL", "EQUAL", *(["UNTESTED"] if name == "whole" else [])), done.out + done.err
    layers = error["layers"]
    assert layers["compared"] == layers["known"], layers["missing"]
    assert {each["verdict"] for each in layers["layers"]} == {"EQUAL"}


def test_the_files_have_every_operator_that_is_translated(right):
    from xverify.formats._tflite_graph import translations

    seen = {layer["kind"] for row in right[1].values() for layer in row["error"]["layers"]["layers"]}
    rare = {"EMBEDDING_LOOKUP", "EXPAND_DIMS", "FILL", "GREATER_EQUAL", "LOGICAL_NOT", "PRELU", "RANGE", "RELU_0_TO_1"}
    rare |= {"SHAPE", "SQUEEZE"}
    assert sorted(set(translations()) - seen - rare) == []


def test_an_operator_without_a_translation_is_not_compared_and_the_others_are(made, tmp_path):
    done, found = rows(tmp_path, made / "symmetric.tflite")
    error = found["symmetric", "runtime"]["error"]
    assert error["verdict"] == "UNTESTED", done.out + done.err
    layers = error["layers"]
    assert (layers["known"] - layers["compared"], len(layers["missing"])) == (1, 1)
    assert "nodes were compared, and the outputs were not" in error["reason"]
    assert "MIRROR_PAD" in done.out + done.err


WRONG = {
    "slope": ("images", "LEAKY_RELU", {"alpha": 0.1001}),
    "centers": ("images", "RESIZE_BILINEAR", {"halfPixelCenters": False}),
    "activation": ("images", "CONV_2D", {"fusedActivationFunction": 1}),
    "average": ("images", "AVERAGE_POOL_2D", {"filterWidth": 2}),
    "whole": ("whole", "LEAKY_RELU", {"alpha": 0.2}),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_named(made, tmp_path, monkeypatch, name):
    right, kind, settings = WRONG[name]
    for folder in ("formats", "wrong"):
        (tmp_path / folder).mkdir()
    (tmp_path / "formats" / "wrongkernels.py").write_text(PLUGIN)
    file = tmp_path / f"{right}.tflite"
    file.write_bytes((made / file.name).read_bytes())
    changed(file, tmp_path / "wrong" / file.name, kind, **settings)
    monkeypatch.setenv("XVERIFY_FORMATS", str(tmp_path / "formats"))
    done, found = rows(tmp_path, file, "--on", "wrongkernels")
    error = found[right, "runtime"]["error"]
    assert (done.code, error["verdict"]) == (1, "DIFFERENT"), done.out + done.err
    faulty = [each for each in error["layers"]["layers"] if each["verdict"] in ("DRIFT", "DIFFERENT")]
    assert [each["kind"] for each in faulty] == [kind]
    assert faulty[0]["layer"] in error["reason"]


def test_a_depthwise_kernel_into_which_a_batch_norm_is_folded_is_accused_only_when_it_is_wrong(made, tmp_path):
    files = [made / f"{name}.tflite" for name in ("folded", "folded_slope", "folded_scale")]
    done, found = rows(tmp_path, *files, "--against", made / "folded.keras")
    right, slope, scale = (found[each.stem, "conversion"]["error"] for each in files)
    assert right["verdict"] in ("IDENTICAL", "EQUAL"), done.out + done.err
    assert (slope["verdict"], scale["verdict"]) == ("DIFFERENT", "DIFFERENT")
    assert "kernel" not in slope["reason"]
    assert "the first value that differs is that of LEAKY_RELU" in slope["reason"]
    assert "DEPTHWISE_CONV_2D" in scale["reason"]
