"""Mutated files of every format: the parent says one line, whatever the bytes are, and a worker ends no other process.

XVERIFY_MUTATED is the number of mutated files for each format; a few when it is not set.
"""

import os
import random
import shutil
import time
import zipfile

import pytest
from modelfiles import FILES, Opened, file
from test_recognising import KERAS, PT2, TORCHSCRIPT, archive, small_onnx

from xverify.errors import SubjectError, UsageError
from xverify.framework import formats

WISHED = int(os.environ.get("XVERIFY_MUTATED", "0"))
SLOWEST = 20.0  # seconds that the parent may look at one small file


def mutate(data, chance):
    """The bytes with one to four mutations, each at a random place."""
    data = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        place, size = chance.randrange(len(data) + 1), chance.choice((1, 2, 4, 16, 64))
        kind = chance.randrange(6)
        if kind == 0:
            data[place : place + size] = chance.randbytes(size)
        elif kind == 1 and place < len(data):
            data[place] ^= 1 << chance.randrange(8)
        elif kind == 2:
            del data[place : place + size]
        elif kind == 3:
            data[place:place] = data[chance.randrange(len(data) + 1) :][:size]
        elif kind == 4:
            data[place : place + 4] = chance.choice((0, 1, 2**31 - 1, 2**32 - 1)).to_bytes(4, "little")
        elif chance.random() < 0.3:
            del data[place:]
        data = data or bytearray(b"\0")
    return bytes(data)


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
    (folder / "h5").write_bytes(b"\x89HDF\r\n\x1a\n" + bytes(range(64)))
    (folder / "ir.xml").write_text('<net name="g" version="11"><data offset="8" size="24"/></net>')
    return sorted(folder.iterdir())


def test_the_parent_survives_mutated_files(tmp_path):
    chance = random.Random(0)
    recognised = 0
    for seed in seeds(tmp_path / "seeds"):
        for _ in range(WISHED or 60):
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
        for _ in range(WISHED or 12):
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


def mutated_copy(original, target, chance):
    """A copy of a file or folder in which one file is mutated; within an archive, sometimes one of its members."""
    if original.is_dir():
        shutil.rmtree(target, ignore_errors=True)
        shutil.copytree(original, target)
        files = sorted(path for path in target.rglob("*") if path.is_file() and path.stat().st_size)
        victim = target / "saved_model.pb" if chance.random() < 0.6 else chance.choice(files)
        victim.write_bytes(mutate(victim.read_bytes(), chance))
        return
    for beside in original.parent.glob(original.stem + ".bin"):
        shutil.copy(beside, target.parent)
    if zipfile.is_zipfile(original) and chance.random() < 0.7:
        with zipfile.ZipFile(original) as archived:
            members = {info.filename: archived.read(info) for info in archived.infolist()}
        victim = chance.choice([name for name, content in members.items() if content])
        archive(target, {**members, victim: mutate(members[victim], chance)})
        return
    target.write_bytes(mutate(original.read_bytes(), chance))
