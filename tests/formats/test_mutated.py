"""Mutated files of every format: the parent says one line, whatever the bytes are, and a worker ends no other process.

``make faults`` checks ten thousand of them.
"""

import random
import sys
import time
from pathlib import Path

import pytest
from helpers.modelfiles import FILES, Opened, file
from test_recognising import KERAS, PT2, TORCHSCRIPT, archive, small_onnx

from xverify.errors import SubjectError, UsageError
from xverify.framework import formats

sys.path.insert(0, str(Path(__file__).parents[2] / "suites"))
from damage import mutate, mutated_copy

SLOWEST = 20.0  # seconds that the parent may look at one small file


def look(path):
    """What the parent says about a file: its format, or the one line of its error."""
    begun = time.monotonic()
    try:
        said = formats.examine(path)
    except UsageError as error:
        said = str(error)
        assert said
        assert "\n" not in said
    assert time.monotonic() - begun < SLOWEST
    return said


def seeds(folder):
    """Small files, made without a framework."""
    folder.mkdir()
    small_onnx(folder / "plain.onnx")
    small_onnx(folder / "external.onnx", "data", offset=0, length=16)
    archive(folder / "torchscript", {**TORCHSCRIPT, "m/code/__torch__.py": "def forward(self, x): return x"})
    archive(
        folder / "pt2", {**PT2, "m/data/weights/model_weights_config.json": {"config": {"w": {"use_pickle": True}}}}
    )
    archive(folder / "keras", KERAS)
    (folder / "tflite").write_bytes(b"\x1c\0\0\0TFL3" + bytes(range(64)))
    (folder / "pte").write_bytes(b"\x3c\0\0\0ET12eh00\x20\0\0\0\x60" + bytes(83))
    (folder / "h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(range(64)))
    (folder / "ir.xml").write_text('<net name="g" version="11"><data offset="8" size="24"/></net>')
    return sorted(folder.iterdir())


def test_the_parent_survives_mutated_files(tmp_path):
    chance = random.Random(0)
    recognised = 0
    for seed in seeds(tmp_path / "seeds"):
        for _ in range(60):
            path = tmp_path / "mutated"
            path.write_bytes(mutate(seed.read_bytes(), chance))
            recognised += not isinstance(look(path), str)
    assert recognised > 40  # otherwise the mutations are too coarse to test anything but the magic numbers


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_a_worker_answers_a_mutated_file_with_one_line(tmp_path, name):
    """The worker opens what the parent lets through, and what it refuses as well: it may end, and nothing else may."""
    chance = random.Random(name)
    original = file(*FILES[name])
    form = formats.load(name)
    target = tmp_path / original.name
    opened = Opened(original, tmp_path / "worker", form.runtime, timeout=60.0)
    ended = []
    try:
        for _ in range(12):
            if opened.worker.process is None or opened.worker.process.poll() is not None:
                opened.worker.close()
                opened.worker.start()
            mutated_copy(original, target, chance)
            look(target)
            opened.path = target
            try:
                opened.build()
                opened.signature()
            except SubjectError as error:
                ended.append(str(error))
    finally:
        opened.worker.close()
    assert not [said for said in ended if "\n" in said or not said]
    assert not [said for said in ended if "took over" in said]  # a hang
    assert len(ended) >= 2, "nearly every mutated file was opened, so nothing was tested"
    assert not (tmp_path / "worker" / "written").exists()
