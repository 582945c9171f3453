"""What a check does early, and late: a process imports torch while this one imports the rest, and while the runtime computes."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from xverify.checking.graph_worker import graph_worker, in_background
from xverify.checking.options import CheckSettings
from xverify.commands._main import main
from xverify.errors import Failed
from xverify.float64.rounding import PART, Noise
from xverify.messages.graph import DescribeGraph
from xverify.processes.worker import Worker


@pytest.mark.parametrize(
    ("first", "late"),
    [
        ("xverify.commands.check, xverify.checking.api", "xverify.checking.run"),
        ("xverify.replay.graph.judge.noise, xverify.replay.graph.judge.replay", "onnx.reference"),
    ],
)
def test_what_is_imported_first_leaves_the_rest_for_later(first, late):
    code = f"import sys, {first}; sys.exit({late!r} in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_noise_of_one_seed_is_the_same_each_time_and_that_of_a_new_generator():
    generator = torch.Generator().manual_seed(7)
    pool = torch.empty(2 * PART, dtype=torch.float64).uniform_(-1.0, 1.0, generator=generator)
    values = torch.linspace(1.0, 2.0, 5, dtype=torch.float64)
    other_order = torch.stack([values, values]).t()[:, :1]  # not contiguous
    starts = [int(torch.randint(PART, (1,), generator=generator)) for _ in range(2)]
    wanted = [values * (1 + 0.5 * pool[start : start + 5]) for start in starts]
    with torch.inference_mode():
        Noise(7).perturbed(values, 0.5)
    for _ in range(2):
        noise = Noise(7)
        assert all(torch.equal(noise.perturbed(values, 0.5), right) for right in wanted)
    assert torch.equal(Noise(7).perturbed(other_order, 0.5).reshape(-1), wanted[0])
    assert torch.equal(Noise(7).perturb_(values.clone(), 0.5), wanted[0])
    infinite = torch.full_like(values, -torch.inf)
    assert torch.equal(Noise(7).perturbed(infinite, 0.5), infinite)


def test_an_error_in_the_background_is_raised_by_the_result():
    def fails():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        in_background(fails).result()


def test_graphs_are_read_before_they_are_asked_for_and_an_error_waits_for_its_question(tmp_path, monkeypatch):
    asked = []

    def answer(worker, request):
        asked.append(Path(request.file).name)
        if asked[-1] == "damaged.onnx":
            raise Failed("no graph")

    monkeypatch.setattr(Worker, "ask", answer)
    monkeypatch.setattr(Worker, "start", lambda worker: None)
    worker = graph_worker(CheckSettings(), tmp_path)
    worker.begin()
    worker.read_early([tmp_path / "m.onnx", tmp_path / "damaged.onnx"])
    worker.ask(DescribeGraph("late.onnx"))
    assert asked == ["m.onnx", "damaged.onnx", "late.onnx"]
    with pytest.raises(Failed, match="no graph"):
        worker.ask(DescribeGraph("damaged.onnx"))


def test_a_file_that_cannot_be_opened_does_not_wait_for_torch(tmp_path, capsys, monkeypatch):
    """The worker that evaluates graphs is ended while it imports, and its folder is deleted."""
    pytest.importorskip("onnxruntime")
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "m.onnx").write_bytes(
        bytes([0x08, 8, 0x12, 1, 0x78, 0x3A, 0])
    )  # a version, a producer, and an empty graph
    assert main(["check", str(tmp_path / "m.onnx"), "--quiet"]) == 3
    assert "failed" in capsys.readouterr().out
    assert [each.name for each in tmp_path.iterdir()] == ["m.onnx"]


def test_a_note_says_how_to_have_the_cases_that_are_left_out_for_time(tmp_path, capsys, monkeypatch):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    sides = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [2, 8]) for name in "xy"]
    nodes = [onnx.helper.make_node("Softmax", ["x"], ["y"])]
    graph = onnx.helper.make_graph(nodes, "graph", sides[:1], sides[1:])
    opset = [onnx.helper.make_opsetid("", 17)]
    onnx.save(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9), tmp_path / "m.onnx")
    monkeypatch.setattr("xverify.checking.meaning.ENOUGH", 0.0)
    assert main(["check", str(tmp_path / "m.onnx"), "--details"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the first 2 of 6 input cases were compared" in said
    wanted = re.search(r"--max-seconds (\d+) has time for all", said)[1]
    assert main(["check", str(tmp_path / "m.onnx"), "--details", "--max-seconds", wanted]) == 0
    assert "input cases were compared" not in capsys.readouterr().out
