"""Other sizes on frameworks: tables of positions, masks and traces that hold one size, in torch, TensorFlow and ONNX Runtime."""

import pytest
from conftest import write_folder

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"ids": TensorSpec(("N", "seq"), "int64", low=0, high=50)},
    outputs={"y": TensorSpec(("N", "seq", 10))},
    sizes={"seq": 16},
    batch=2,
)
"""
TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok, self.pos = nn.Embedding(50, 16), nn.Embedding(64, 16)
        self.norm, self.head = nn.LayerNorm(16), nn.Linear(16, 10)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        scores = x @ x.transpose(1, 2) / 4
        mask = torch.ones(ids.shape[1], ids.shape[1]).tril() > 0
        x = torch.softmax(scores.masked_fill(~mask, -1e9), -1) @ x
        return self.head(self.norm(x))


def build():
    return Net()
"""
TENSORFLOW = """
import keras
import tensorflow as tf


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.tok = keras.layers.Embedding(50, 16, name="tok")
        self.pos = keras.layers.Embedding(64, 16, name="pos")
        self.norm = keras.layers.LayerNormalization(epsilon=1e-5, name="norm")
        self.head = keras.layers.Dense(10, name="head")

    def call(self, ids):
        length = tf.shape(ids)[1]
        x = self.tok(ids) + self.pos(tf.range(length))
        scores = x @ tf.transpose(x, (0, 2, 1)) / 4
        mask = tf.linalg.band_part(tf.ones((length, length)), -1, 0) > 0
        x = tf.nn.softmax(tf.where(mask, scores, -1e9), -1) @ x
        return self.head(self.norm(x))


def build():
    return Net()
"""
POSITIONS = ("tf.range(length)", "tf.minimum(tf.range(length), 19)")
MASK = ("-1, 0)", "16, 0)")  # at most so many earlier places: right up to 17
BATCH = ("x = self.tok(ids)", "ids = tf.reshape(ids, (2, -1))\n        x = self.tok(ids)")
SIZES = ("--no-timing", "--cases", 2, "--batch", "2,1", "--sizes", "seq=16,33")


def ran(xverify, tmp_path, subjects, change=("", ""), torch=TORCH, tensorflow=TENSORFLOW, options=SIZES):
    folder = write_folder(tmp_path / "port", (), spec=SPEC)
    assert change[0] in tensorflow
    (folder / "torch.py").write_text(torch)
    (folder / "tensorflow.py").write_text(tensorflow.replace(*change))
    return xverify("run", folder, "--subjects", subjects, *options)


def verdicts(done, subject):
    rows = [row for row in done.result["rows"] if row["subject"].partition(" ")[0] == subject]
    return {tuple(row["sizes"].values()): row["error"]["verdict"] for row in rows}


@pytest.mark.slow
def test_right_ports_and_the_open_export_are_equal_at_every_size(xverify, tmp_path):
    done = ran(xverify, tmp_path, "torch:eager,torch:trace,tensorflow:eager,tensorflow:graph,onnxruntime")
    assert done.code == 0, done.out
    assert len(done.result["rows"]) == 20
    assert {row["error"]["verdict"] for row in done.result["rows"]} <= {"EQUAL", "IDENTICAL"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "wrong", "place"),
    [
        (POSITIONS, {(1, 33), (2, 33)}, "the input of `pos`: 13 of 33 whole numbers differ"),
        (MASK, {(1, 33), (2, 33)}, "Fault between `pos` and `norm`"),
        (BATCH, {(1, 16), (1, 33)}, ""),
    ],
)
def test_a_fault_of_a_port_is_told_with_its_size_and_place(xverify, tmp_path, fault, wrong, place):
    done = ran(xverify, tmp_path, "torch:eager,tensorflow:graph", fault)
    assert done.code == 1, done.out
    found = verdicts(done, "tensorflow:graph")
    assert {size for size, verdict in found.items() if verdict in ("DIFFERENT", "INVALID")} == wrong
    [note] = [note for note in done.result["notes"] if "first size that differs" in note]
    first = " ".join(f"{name}={size}" for name, size in zip(("batch", "seq"), min(wrong)))
    assert note.startswith(f"tensorflow:graph: the first size that differs is {first} (2 of 4 sizes differ)")
    assert place in note
    assert done.row("tensorflow:graph")["error"]["verdict"] == "EQUAL"


@pytest.mark.slow
def test_a_constant_that_a_trace_and_an_export_hold_is_found(xverify, tmp_path):
    baked = TORCH.replace("x.transpose(1, 2) / 4", "x.transpose(1, 2) / float(len(ids[0])) ** 0.5")
    assert baked != TORCH
    done = ran(xverify, tmp_path, "torch:eager,torch:script,torch:trace,onnxruntime", torch=baked)
    assert done.code == 1, done.out
    for subject in ("torch:eager", "torch:script"):
        assert set(verdicts(done, subject).values()) <= {"EQUAL", "IDENTICAL"}
    for subject in ("torch:trace", "onnxruntime"):
        found = verdicts(done, subject)
        assert {size for size, verdict in found.items() if verdict == "DIFFERENT"} == {(1, 33), (2, 33)}
    reason = done.row("torch:trace batch=1 seq=33")["error"]["reason"]
    assert reason.startswith(
        "torch:trace was made at batch=2 seq=16, and differs at this size from the same model called"
    )


@pytest.mark.slow
def test_a_mode_with_one_size_is_told_as_such(xverify, tmp_path):
    pytest.importorskip("ai_edge_litert")
    done = ran(xverify, tmp_path, "torch:eager,litert", options=("--no-timing", "--cases", 2, "--sizes", "seq=16,33"))
    row = done.row("litert seq=33")
    assert row["error"]["verdict"] == "UNTESTED"
    assert row["error"]["reason"].startswith(
        "litert takes the size seq=16 alone: the conversion to TensorFlow Lite fixes"
    )
    assert done.code == 4


@pytest.mark.slow
def test_a_process_that_dies_at_a_size_ends_its_rows_there(xverify, tmp_path):
    dies = TORCH.replace(
        "        x = self.tok", "        import os\n        ids.shape[1] < 33 or os._exit(3)\n        x = self.tok"
    )
    folder = write_folder(tmp_path / "port", (), spec=SPEC)
    (folder / "torch.py").write_text(TORCH)
    (folder / "torch_port.py").write_text(dies)
    done = xverify("run", folder, "--subjects", "torch:eager,torch_port:eager", "--no-timing", "--sizes", "seq=16,33,9")
    assert done.code == 3, done.out
    assert done.row("torch_port:eager seq=9")["status"] == "ok"
    row = done.row("torch_port:eager seq=33")
    assert (row["status"], row["error"]) == ("crashed", None)
    assert done.row("torch_port:eager")["reason"].startswith("at seq=33: ")


@pytest.mark.slow
def test_training_is_at_the_first_size(xverify, tmp_path):
    spec = SPEC.replace(
        "sizes=", 'targets={"t": TensorSpec(("N", "seq"), "int64", low=0, high=10)}, loss="cross_entropy", sizes='
    )
    folder = write_folder(tmp_path / "port", (), spec=spec)
    (folder / "torch.py").write_text(TORCH)
    options = ("--no-timing", "--batch", "2,1", "--sizes", "seq=8,12", "--task", "forward,train", "--steps", 2)
    done = xverify("run", folder, "--subjects", "torch:eager", *options)
    assert done.code == 4, done.out  # it is the reference alone
    rows = [(row["task"], row["batch"], row["sizes"].get("seq")) for row in done.result["rows"]]
    assert rows == [("forward", 2, 8), ("forward", 1, 8), ("forward", 1, 12), ("forward", 2, 12), ("train", 2, 8)]
