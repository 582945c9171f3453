"""``xverify check --time`` from outside: small ONNX files of known work, wrong and broken files among them."""

import json
from pathlib import Path

import numpy as np
import pytest
from helpers.modelfiles import FILES, file

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")
pytest.importorskip("torch")  # it computes the graphs in float64
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

pytestmark = pytest.mark.usefixtures("in_one_process")
SIZE = 256
FAST = ("--time", "--warmup", 2, "--rerun", 16, "--threads", 1)


def write(path: Path, products: int = 2, scale: float = 1.0, size: int = SIZE) -> Path:
    """A chain of matrix products, each with a Tanh, and then a factor. scale: of the factor, which is 1 in a right file."""
    random = np.random.default_rng(0)
    nodes, arrays, name = [], {"scale": np.float32(scale)}, "x"
    for index in range(products):
        arrays[f"w{index}"] = (random.standard_normal((size, size)) / size**0.5).astype(np.float32)
        nodes.append(helper.make_node("MatMul", [name, f"w{index}"], [f"m{index}"], f"/{index}/MatMul"))
        nodes.append(helper.make_node("Tanh", [f"m{index}"], [f"t{index}"], f"/{index}/Tanh"))
        name = f"t{index}"
    nodes.append(helper.make_node("Mul", [name, "scale"], ["y"], "/Mul"))
    tensors = [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["batch", size]) for each in "xy"]
    graph = helper.make_graph(
        nodes,
        "chain",
        tensors[:1],
        tensors[1:],
        [numpy_helper.from_array(array, each) for each, array in arrays.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


@pytest.fixture
def check(xverify, tmp_path):
    """Run the check. Returns the outcome and the rows of its result file."""

    def call(*arguments, name="r.json"):
        done = xverify("check", *arguments, "--json", tmp_path / name)
        assert (tmp_path / name).exists(), done.err
        return done, json.loads((tmp_path / name).read_text())

    return call


@pytest.mark.timed
@pytest.mark.slow
def test_more_work_is_slower_and_the_interval_of_the_ratio_excludes_one(no_noise, check, tmp_path):
    little, much = write(tmp_path / "little.onnx", 1), write(tmp_path / "much.onnx", 12)
    done, result = check(
        little,
        much,
        "--time",
        "--shape",
        f"x=64x{SIZE}",
        "--threads",
        1,
        "--effort",
        "standard",
        "--rerun",
        40,
        "--warmup",
        5,
    )
    assert done.code == 0, done.out + done.err
    first, second = result["rows"]
    assert [row["error"]["verdict"] in ("IDENTICAL", "EQUAL") for row in (first, second)] == [True, True]
    assert first["error"]["timed_cases"] == 1
    assert second["memory"]["peak_rss_mib"] > 10
    assert [first["speed"]["reason"], second["speed"]["reason"]] == [None, None]
    assert len(first["speed"]["launches"]) >= 3
    assert first["speed"]["verdict"] == "BASELINE"
    assert second["speed"]["verdict"] == "SLOWER"
    assert {"time", "ratio"} <= set(done.out.split())
    assert second["speed"]["ratio_ci"][0] > 1.5
    assert first["speed"]["fps"] > second["speed"]["fps"]
    head = done.out[: done.out.index("little.onnx  onnxruntime")].replace("\n", " ")
    assert {"calls", "peak", "MiB"} <= set(head.replace("/", " ").split())  # heads may stand on two lines


def test_the_verdict_comes_before_the_speed_and_the_reference_is_the_baseline(check, tmp_path):
    reference, port = write(tmp_path / "model.onnx"), write(tmp_path / "port.onnx")
    done, result = check(port, "--against", reference, *FAST)
    assert done.code == 0, done.out + done.err
    base, runtime, conversion = result["rows"]
    assert [base["subject"], base["task"]] == ["model.onnx (reference)", "conversion"]
    assert base["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert base["error"]["layers"]["compared"] == base["error"]["layers"]["known"] == 5  # its nodes are judged
    assert runtime["speed"] is None
    assert base["speed"]["ratio"] == 1
    assert conversion["speed"]["calls"] == base["speed"]["calls"] == 16
    assert base["speed"]["fps"] / conversion["speed"]["fps"] == pytest.approx(conversion["speed"]["ratio"])
    assert done.err.index("port.onnx, conversion: ") < done.err.index("warm, about")
    settings = result["settings"]
    assert [settings[name] for name in ("effort", "allocator", "warmup", "rerun", "batch")] == [
        "quick",
        "keep",
        2,
        16,
        1,
    ]
    assert result["item"] == "call"
    assert result["noise"]["rounds"] > 0


def test_the_speed_of_a_wrong_file_is_struck_out_unless_the_conditions_accept_it(no_noise, check, tmp_path):
    reference, near = write(tmp_path / "model.onnx"), write(tmp_path / "near.onnx", scale=0.99)
    done, result = check(
        near, write(tmp_path / "far.onnx", scale=0.5), "--against", reference, "--accept", "sqnr>=30", *FAST
    )
    assert done.code == 1, done.out + done.err
    rows = {row["subject"]: row for row in result["rows"] if row["task"] == "conversion"}
    assert rows["near.onnx"]["error"]["verdict"] == rows["far.onnx"]["error"]["verdict"] == "DIFFERENT"
    wrong, accepted = rows["far.onnx"]["speed"], rows["near.onnx"]["speed"]
    assert (wrong["verdict"], wrong["counted"], wrong["not_counted"]) == ("REFUSED", False, "DIFFERENT")
    assert "not counted" in done.out
    assert accepted["counted"]
    assert accepted["not_counted"] != "DIFFERENT"


def test_a_file_that_fails_has_its_row_and_the_others_are_timed(check, tmp_path):
    good, other, broken = write(tmp_path / "good.onnx"), write(tmp_path / "other.onnx"), tmp_path / "broken.onnx"
    node = helper.make_node("NoSuchOperator", ["x"], ["y"])
    tensors = [helper.make_tensor_value_info(each, TensorProto.FLOAT, ["batch", SIZE]) for each in "xy"]
    graph = helper.make_graph([node], "broken", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), broken)
    done, result = check(good, broken, other, *FAST)
    assert done.code == 3, done.out + done.err
    first, failed, last = result["rows"]
    assert failed["status"] == "unsupported"
    assert "NoSuchOperator" in failed["reason"]
    assert failed["speed"] is None
    assert first["speed"]["calls"] == last["speed"]["calls"] == 16
    assert last["speed"]["ratio"] > 0


def test_without_time_nothing_is_timed(check, tmp_path):
    done, result = check(write(tmp_path / "good.onnx"))
    assert done.code == 0, done.out + done.err
    assert [row["speed"] for row in result["rows"]] == [None]
    assert result["noise"]["rounds"] == 0
    assert "warm" not in done.err
    assert "calls/s" not in done.out


def test_the_budget_covers_verdicts_and_timing(check, tmp_path):
    done, result = check(write(tmp_path / "good.onnx"), "--time", "--max-seconds", "0.001")
    assert done.code in (0, 4), done.out + done.err
    assert "--max-seconds left no time to check the nodes" in done.out
    assert "--max-seconds 0.001 was exceeded" in done.out
    assert len(result["rows"][0]["speed"]["samples"]) == 1


def test_images_are_counted_and_two_results_compare(check, xverify, tmp_path):
    shape, path = ["batch", 3, 8, 8], tmp_path / "image.onnx"
    tensors = [helper.make_tensor_value_info(each, TensorProto.FLOAT, shape) for each in "xy"]
    graph = helper.make_graph([helper.make_node("Tanh", ["x"], ["y"], "/Tanh")], "image", tensors[:1], tensors[1:])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    done, result = check(path, "--shape", "x=4x3x8x8", *FAST, name="old.json")
    assert done.code == 0, done.out + done.err
    assert "FPS" in done.out
    row = result["rows"][0]
    assert row["batch"] == 4
    assert row["speed"]["fps"] == pytest.approx(4 / row["speed"]["seconds_per_step"])
    compared = xverify("diff", tmp_path / "old.json", tmp_path / "old.json")
    assert compared.code == 4, compared.out + compared.err  # one process run is too few for a verdict on speed
    assert "--effort standard" in compared.out or "refused" in compared.out
    result["rows"][0]["speed"] = None
    (tmp_path / "untimed.json").write_text(json.dumps(result))
    compared = xverify("diff", tmp_path / "old.json", tmp_path / "untimed.json")
    assert compared.code == 2
    assert "only the old result has speeds" in compared.err
    compared = xverify("diff", tmp_path / "untimed.json", tmp_path / "untimed.json")
    assert compared.code == 0, compared.out + compared.err
    assert "NOT WORSE" in compared.out


COUNTING = '''
"""A file that computes 2 x. The word in it says what happens after 40 calls."""
import os
from xverify.framework.modelfile import ModelFile, Signature, Tensor

def twice(framework, model, example):
    word, calls = model[0], []
    def call(x):
        calls.append(1)
        if word == "dies" and len(calls) > 40:
            os._exit(3)
        return {"y": (2.1 if word == "drifts" and len(calls) > 40 else 2) * x}
    return call

class Adapter(ModelFile):
    name, title, runtime = "counting", "counting file", "counter"
    needs = {"numpy": "numpy"}
    modes = {"twice": twice}

    def __init__(self, threads, device):
        pass

    @classmethod
    def recognises(cls, path):
        return path.read_bytes().startswith(b"counting")

    def open(self, path, options, float64):
        return path.read_text().split()[1], float64

    def signature(self, model):
        found = Signature((Tensor("x", (4, 3), "float32"),), (Tensor("y", (4, 3), "float32"),))
        return found.as_float64() if model[1] else found

    def to_native(self, array, layout):
        return array

    to_numpy = to_native

    def wait(self, outputs):
        pass

    def environment(self):
        return {}
'''


def test_what_happens_in_timed_calls_alone_is_in_the_rows(check, tmp_path, monkeypatch):
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "counting.py").write_text(COUNTING)
    monkeypatch.setenv("XVERIFY_FORMATS", str(tmp_path / "formats"))
    files = [tmp_path / f"{word}.any" for word in ("stays", "drifts", "dies")]
    for path in files:
        path.write_text(f"counting {path.stem}")
    done, result = check(*files, "--time", "--warmup", 60, "--rerun", 16)
    assert done.code == 1, done.out + done.err
    assert done.err.count(", runtime: EQUAL") + done.err.count(", runtime: IDENTICAL") == 3
    stays, drifts, dies = result["rows"]
    assert stays["error"]["verdict"] in ("IDENTICAL", "EQUAL")
    assert stays["speed"]["calls"] == 16
    assert drifts["error"]["verdict"] == "INVALID"
    assert "in process run 1 the outputs of timed calls differ" in drifts["error"]["reason"]
    assert "by 0.048 of the result" in drifts["error"]["reason"]
    assert drifts["speed"]["not_counted"] == "INVALID"
    assert dies["status"] == "crashed"
    assert dies["reason"].startswith("while it was timed: exited with status 3")
    assert dies["error"]["verdict"] in ("IDENTICAL", "EQUAL")


@pytest.mark.slow
def test_files_of_every_kind_of_runtime_are_timed_together(no_noise, check):
    names = ("savedmodel", "tflite", "torchscript", "pt2", "openvino-ir")
    files = [file(*FILES[name]) for name in names]
    sizes = ("--shape", "x=4x4", "--shape", "scale=4x3")
    done, result = check(*files, "--against", file(*FILES["onnx"]), *sizes, *FAST)
    rows = [row for row in result["rows"] if row["task"] == "conversion"]
    assert [row["error"]["verdict"] in ("IDENTICAL", "EQUAL") for row in rows] == [True] * 6, done.out
    assert [row["speed"]["calls"] for row in rows] == [16] * 6
    assert all(row["speed"]["counted"] for row in rows), done.out
    assert all(row["memory"]["peak_rss_mib"] > 10 for row in rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--effort", "standard"], "--effort says how the files are timed; add --time"),
        (["--warmup", 0], "--warmup says how the files are timed; add --time"),
        (["--pin", "0"], "--pin says how the files are timed; add --time"),
        (["--allocator", "system"], "--allocator says how the files are timed; add --time"),
        (["--time", "--effort", "fast"], "--effort is 'fast'"),
        (["--time", "--pin", "4096"], "--pin 4096: this process may use the cores"),
    ],
)
def test_options_of_the_timing_are_refused_in_one_line(xverify, tmp_path, arguments, says):
    done = xverify("check", write(tmp_path / "good.onnx"), *arguments)
    assert done.code == 2
    assert says in done.err
    assert len(done.err.strip().splitlines()) == 1
