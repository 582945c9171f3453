"""ONNX files and exports on onnxruntime-web in Node.js: right ones are EQUAL, and a wrong kernel is named."""

import json
import shutil

import numpy as np
import psutil
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnx")

import onnx
from conftest import cli
from helpers.web import (
    CHROMIUM,
    KILLED,
    LOST_IN_PAGE,
    NEEDS_CHROMIUM,
    NEEDS_WEB,
    TICKING,
    WEB,
    WRONG_IN_PAGE,
    WRONG_KERNEL,
    modules_with,
    plant,
)

from xverify.framework import formats
from xverify.messages import Block, Build, Pieces, Prepare
from xverify.messages.files import ReadSignature
from xverify.processes.command import interpreter
from xverify.processes.worker import Worker
from xverify.weights import npz

pytestmark = [pytest.mark.slow, NEEDS_WEB]

WASM, WEBGPU = "onnxruntime-web:wasm", "onnxruntime-web:webgpu"

# A browser that is not asked for the adapter that computes on the processor, and may not use a GPU.
WITHOUT_WEBGPU = """#!/bin/sh
for each do
  shift
  case "$each" in *webgpu*) ;; *) set -- "$@" "$each" ;; esac
done
exec {chromium} --disable-gpu "$@"
"""


def described(name, shape, kind=onnx.TensorProto.FLOAT):
    return onnx.helper.make_tensor_value_info(name, kind, shape)


def save(
    path, nodes, weights=(), shape=(2, 3, 8, 8), returned=(2, 5), opsets=("",), kind=onnx.TensorProto.FLOAT, **more
):
    """Write a graph from x to y."""
    stored = [onnx.numpy_helper.from_array(array, name) for name, array in weights]
    graph = onnx.helper.make_graph(nodes, "g", [described("x", shape, kind)], [described("y", returned, kind)], stored)
    imports = [onnx.helper.make_opsetid(each, 1 if each else 18) for each in opsets]
    onnx.save(onnx.helper.make_model(graph, opset_imports=imports, ir_version=9), path, **more)
    return path


@pytest.fixture
def file(tmp_path):
    """A convolution, and two linear layers with a ReLU each, whose weights are in another file."""
    draw = np.random.default_rng(0)
    sizes = {"kernel": (4, 3, 3, 3), "one": (144, 16), "two": (16, 5)}
    weights = [(name, draw.standard_normal(size).astype("f") * 0.2) for name, size in sizes.items()]
    make = onnx.helper.make_node
    nodes = [
        make("Conv", ["x", "kernel"], ["c"], name="conv"),
        make("Flatten", ["c"], ["f"], name="flat"),
        make("MatMul", ["f", "one"], ["h"], name="fc1"),
        make("Relu", ["h"], ["r"], name="first"),
        make("MatMul", ["r", "two"], ["s"], name="fc2"),
        make("Relu", ["s"], ["y"], name="second"),
    ]
    settings = {"save_as_external_data": True, "location": "weights.bin", "size_threshold": 0}
    return save(tmp_path / "model.onnx", nodes, weights, **settings)


def rows(folder, file, *arguments):
    result = folder / "check.json"
    done = cli(folder, "check", file, "--json", result, *arguments)
    return done, json.loads(result.read_text())["rows"] if result.exists() else []


def test_a_right_file_is_equal_at_every_node(tmp_path, file):
    done, found = rows(tmp_path, file, "--on", f"onnxruntime,{WASM}", "--time", "--rerun", 20, "--warmup", 2)
    assert done.code == 0, done.out + done.err
    assert [row["error"]["verdict"] for row in found] == ["EQUAL", "EQUAL"]
    web = found[1]
    assert (web["error"]["layers"]["compared"], web["error"]["layers"]["known"]) == (6, 6)
    assert web["environment"]["clock"] == "performance.now of Node.js"
    assert 0 < web["environment"]["clock_resolution_seconds"] < 1e-4
    assert web["speed"]["fps"] > 0


@NEEDS_CHROMIUM
def test_a_right_file_is_equal_at_every_node_in_a_page(tmp_path, file):
    done, [row] = rows(tmp_path, file, "--on", WEBGPU, "--time", "--rerun", 20, "--warmup", 2)
    assert done.code == 0, done.out + done.err
    assert row["error"]["verdict"] == "EQUAL"
    assert (row["error"]["layers"]["compared"], row["error"]["layers"]["known"]) == (6, 6)
    assert row["environment"]["clock"] == "performance.now of the browser"
    assert "swiftshader" in row["environment"]["adapter"]
    assert row["speed"]["fps"] > 0


@pytest.mark.parametrize(
    ("right", "program"),
    [("onnx-wasm", WRONG_KERNEL), pytest.param("onnx-webgpu", WRONG_IN_PAGE, marks=NEEDS_CHROMIUM)],
    ids=["wasm", "webgpu"],
)
def test_a_wrong_kernel_is_named(tmp_path, file, monkeypatch, right, program):
    plant(tmp_path, monkeypatch, modules_with(tmp_path, program, ("first", "Relu", "Tanh")), right)
    done, [row] = rows(tmp_path, file, "--on", "wrongweb")
    error = row["error"]
    assert (done.code, error["verdict"]) == (1, "DIFFERENT"), done.out + done.err
    wrong = [each["layer"] for each in error["layers"]["layers"] if each["verdict"] in ("DRIFT", "DIFFERENT")]
    assert wrong == ["first"]
    assert "first" in error["reason"]


@NEEDS_CHROMIUM
def test_a_device_that_is_lost_is_a_row(tmp_path, file, monkeypatch):
    plant(tmp_path, monkeypatch, modules_with(tmp_path, LOST_IN_PAGE), "onnx-webgpu")
    done, [row] = rows(tmp_path, file, "--on", "wrongweb")
    assert (done.code, row["status"]) == (3, "failed"), done.out + done.err
    assert "the WebGPU device was lost" in row["reason"]


@pytest.mark.parametrize(
    ("script", "status", "says"),
    [
        (None, "not-installed", "no chromium or google-chrome or chromium-browser is on the path"),
        ("#!/bin/sh\nexit 7\n", "unsupported", "the browser ended (7)"),
        pytest.param(
            WITHOUT_WEBGPU,
            "unsupported",
            "this browser has no WebGPU adapter",
            marks=NEEDS_CHROMIUM,
        ),
    ],
    ids=["absent", "ends", "without"],
)
def test_a_browser_that_cannot_compute_is_one_line(tmp_path, file, monkeypatch, script, status, says):
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "node").symlink_to(shutil.which("node"))
    if script is not None:
        (folder / "chromium").write_text(script.format(chromium=CHROMIUM))
        (folder / "chromium").chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))
    done, [row] = rows(tmp_path, file, "--on", WEBGPU)
    assert (done.code, row["status"]) == (3, status), done.out + done.err
    assert says in row["reason"]
    assert "\n" not in row["reason"]


def test_a_process_that_is_killed_is_a_row(tmp_path, file, monkeypatch):
    plant(tmp_path, monkeypatch, modules_with(tmp_path, KILLED))
    done, [row] = rows(tmp_path, file, "--on", "wrongweb")
    assert (done.code, row["status"]) == (3, "crashed"), done.out + done.err
    assert row["reason"].endswith("Node.js was killed by SIGKILL while computing")


@pytest.fixture
def worker(tmp_path, file):
    """A started worker of a format, given its name, with the file of which it has read the signature."""
    started = []

    def start(name):
        form = formats.load(name)
        (tmp_path / "worker").mkdir()
        worker = Worker(form, interpreter(form), tmp_path / "worker", threads=2, device="cpu", timeout=300)
        started.append(worker)
        worker.start()
        worker.ask(Build(str(file), {}, None, {}, {}, {}))
        assert [each.name for each in worker.ask(ReadSignature()).inputs] == ["x"]
        return worker

    yield start
    for each in started:
        each.close()


def test_the_process_ends_with_its_worker(worker):
    mine = worker("onnx-wasm")
    node = psutil.Process(mine.pid)
    assert "session.mjs" in " ".join(node.cmdline())
    assert node.ppid() == mine.process.pid
    psutil.Process(mine.process.pid).kill()
    node.wait(20)


def test_the_clock_of_the_process_times_the_calls(worker, tmp_path, monkeypatch):
    """onnxruntime-web reads the planted clock in its calls, too, so each takes some ticks."""
    plant(tmp_path, monkeypatch, modules_with(tmp_path, TICKING))
    mine = worker("wrongweb")
    npz.save_file({"0/x": np.ones((2, 3, 8, 8), np.float32)}, tmp_path / "inputs.npz")
    one = mine.ask(Prepare(str(tmp_path / "inputs.npz"), "all")).second_step_seconds
    three = mine.ask(Block(0, 3, keep=str(tmp_path / "outputs.npz"))).seconds
    tick = 0.005
    assert one >= tick
    assert one / tick == pytest.approx(round(one / tick), abs=1e-9)
    assert three == pytest.approx(3 * (one - tick) + tick, abs=1e-9)
    assert npz.load_file(tmp_path / "outputs.npz")["0/y"].shape == (2, 5)
    assert mine.ask(Pieces(2, 4)).seconds == pytest.approx((2 * (one - tick) + tick,) * 4, abs=1e-9)


@pytest.mark.parametrize(
    ("node", "settings", "says"),
    [
        (("Frobnicate", "com.x"), {"opsets": ("", "com.x")}, "operator com.x:Frobnicate is of no standard opset"),
        (("Relu", ""), {"kind": onnx.TensorProto.BFLOAT16}, "with these dtypes"),
        (("SplitToSequence", ""), {}, "is a value that is no tensor"),
    ],
)
def test_what_the_runtime_lacks_is_one_line(tmp_path, node, settings, says):
    operator, domain = node
    file = save(
        tmp_path / "lacking.onnx",
        [onnx.helper.make_node(operator, ["x"], ["y"], name="n", domain=domain)],
        shape=(2, 3),
        returned=(2, 3),
        **settings,
    )
    if operator == "SplitToSequence":
        model = onnx.load(file)
        output = onnx.helper.make_tensor_sequence_value_info("y", onnx.TensorProto.FLOAT, None)
        model.graph.output[0].CopyFrom(output)
        onnx.save(model, file)
    done, [row] = rows(tmp_path, file, "--on", WASM)
    assert (done.code, row["status"]) == (3, "unsupported"), done.out + done.err
    assert says in row["reason"]
    assert "\n" not in row["reason"]


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("onnxruntime-web:webgl", WEBGPU),
        (f"{WASM}==1.29.0", "--on onnxruntime-web takes no version"),
    ],
)
def test_another_backend_or_version_is_refused(tmp_path, file, on, says):
    done, _ = rows(tmp_path, file, "--on", on)
    assert done.code == 2
    assert says in done.err


def test_a_run_judges_and_times_the_export(xverify):
    done = xverify("run", "mlp", "--subjects", f"onnxruntime,{WASM}", "--layers", "--warmup", 2, "--rerun", 16)
    assert done.code == 0, done.out + done.err
    row = done.row(WASM)
    assert row["error"]["verdict"] == "EQUAL"
    assert row["error"]["layers"]["compared"] == row["error"]["layers"]["known"]
    assert row["speed"]["fps"] > 0


def test_a_wrong_kernel_is_placed_in_its_layer(xverify, tmp_path, monkeypatch):
    modules = modules_with(tmp_path, WRONG_KERNEL, ("/relu/Relu", "Relu", "Tanh"))
    plugins = plant(tmp_path, monkeypatch, modules, WEB.name)
    done = xverify("run", "mlp", "--subjects", "wrongweb:wasm", "--layers", "--no-timing", frameworks=plugins)
    assert done.code == 1, done.out + done.err
    error = done.row("wrongweb:wasm")["error"]
    assert error["verdict"] == "DIFFERENT"
    assert [each["layer"] for each in error["layers"]["layers"] if each["verdict"] == "DIFFERENT"] == ["relu"]
