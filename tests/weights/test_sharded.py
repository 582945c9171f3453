"""Weights in several .safetensors files: read like one file, or refused for what is wrong with them."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import write_folder

from xverify.checking.weights import read_stored
from xverify.errors import WeightsError
from xverify.processes.reading import convert_weights
from xverify.weights import digest, load_file, open_file, save_file, sharded

pytestmark = pytest.mark.usefixtures("in_one_process")

RNG = np.random.default_rng(0)
SHAPES = {"fc1.weight": (6, 8), "fc1.bias": (6,), "fc2.weight": (3, 6), "fc2.bias": (3,)}  # of the port of write_folder
ARRAYS = {name: RNG.standard_normal(shape).astype(np.float32) for name, shape in SHAPES.items()}
FIRST, SECOND = "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"
HOLDER = {name: FIRST if name.startswith("fc1") else SECOND for name in ARRAYS}
INDEX = "model.safetensors.index.json"


def write_index(folder, weight_map):
    told = {"metadata": {"total_size": 1}, "weight_map": weight_map}
    (folder / INDEX).write_text(json.dumps(told))


def write_shards(folder, arrays=ARRAYS, index=True):
    """A folder with two shards, as Hugging Face's libraries write it."""
    folder.mkdir()
    for shard in (FIRST, SECOND):
        save_file({name: array for name, array in arrays.items() if HOLDER[name] == shard}, folder / shard)
    if index:
        write_index(folder, HOLDER)
    return folder


@pytest.fixture
def folder(tmp_path):
    return write_shards(tmp_path / "trained")


def test_shards_have_the_digest_of_one_file(folder, tmp_path):
    save_file(ARRAYS, tmp_path / "one.safetensors")
    one = digest(load_file(tmp_path / "one.safetensors"))
    assert one == digest(ARRAYS)
    for path in (folder, folder / INDEX):
        assert digest(load_file(path)) == one
        assert digest(convert_weights(path, tmp_path / "read.npz")) == one
        assert [each.name for each in sharded.files(path)] == [INDEX, FIRST, SECOND]
    (folder / INDEX).unlink()
    assert digest(load_file(folder)) == one
    (tmp_path / "single").mkdir()
    shutil.copy(tmp_path / "one.safetensors", tmp_path / "single" / "model.safetensors")
    assert digest(load_file(tmp_path / "single")) == one


def test_shards_are_compared_with_one_file(folder, tmp_path):
    save_file(ARRAYS, tmp_path / "one.safetensors")
    one = read_stored(tmp_path / "one.safetensors", tmp_path / "one.npz").arrays
    for path in (folder, folder / INDEX):
        assert digest(read_stored(path, tmp_path / "many.npz").arrays) == digest(one)


def test_an_array_is_read_when_it_is_looked_up(folder):
    found = open_file(folder)
    assert set(found) == set(ARRAYS)
    assert found["fc1.bias"] is not found["fc1.bias"]
    with pytest.raises(KeyError):
        found["fc3.bias"]


def bfloat16(array):
    """The upper halves of float32 numbers, as a file holds bfloat16."""
    return (np.ascontiguousarray(array).view(np.uint32) >> 16).astype("<u2")


def write_raw(path, dtype, shape, content):
    """A file with one array "w", of any dtype and bytes."""
    header = json.dumps({"w": {"dtype": dtype, "shape": shape, "data_offsets": [0, len(content)]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + content)


def test_half_precision_is_read_as_float32(tmp_path):
    values = np.array([[1.5, -0.25, 3.0]], np.float32)
    write_raw(tmp_path / "b.safetensors", "BF16", [1, 3], bfloat16(values).tobytes())
    write_raw(tmp_path / "h.safetensors", "F16", [1, 3], values.astype("<f2").tobytes())
    for name in ("b", "h"):
        assert digest(load_file(tmp_path / f"{name}.safetensors")) == digest({"w": values})
    write_raw(tmp_path / "f.safetensors", "F8_E4M3", [1, 3], bytes(3))
    with pytest.raises(WeightsError, match=r"f\.safetensors: w has dtype F8_E4M3, which is not read; known: BF16, F64"):
        load_file(tmp_path / "f.safetensors")


def outside(folder):
    shutil.move(folder / SECOND, folder.parent / SECOND)
    write_index(folder, {name: f"../{shard}" if shard == SECOND else shard for name, shard in HOLDER.items()})


def absolute(folder):
    write_index(folder, {name: str(folder / shard) for name, shard in HOLDER.items()})


def below(folder):
    (folder / "more").mkdir()
    shutil.move(folder / SECOND, folder / "more" / SECOND)
    write_index(folder, {name: f"more/{shard}" if shard == SECOND else shard for name, shard in HOLDER.items()})


def missing(folder):
    (folder / SECOND).unlink()


def missing_without_index(folder):
    (folder / SECOND).unlink()
    (folder / INDEX).unlink()


def missing_first(folder):
    (folder / FIRST).unlink()
    (folder / INDEX).unlink()


def two_shards(folder):
    save_file({**load_file(folder / SECOND), "fc1.bias": ARRAYS["fc1.bias"]}, folder / SECOND)


def two_shards_without_index(folder):
    two_shards(folder)
    (folder / INDEX).unlink()


def unnamed(folder):
    write_index(folder, {name: shard for name, shard in HOLDER.items() if name != "fc2.bias"})


def not_held(folder):
    write_index(folder, {**HOLDER, "fc3.bias": SECOND})


def elsewhere(folder):
    write_index(folder, {**HOLDER, "fc2.bias": FIRST})


def truncated(folder):
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content[:-5])


def damaged(folder):
    content = (folder / SECOND).read_bytes()
    (folder / SECOND).write_bytes(content[:8] + b"}" * 20 + content[28:])


def empty(folder):
    (folder / SECOND).write_bytes(b"")


def link(folder):
    shutil.move(folder / SECOND, folder.parent / SECOND)
    (folder / SECOND).symlink_to(folder.parent / SECOND)


def linked_index(folder):
    shutil.move(folder / INDEX, folder.parent / INDEX)
    (folder / INDEX).symlink_to(folder.parent / INDEX)


def directory(folder):
    (folder / SECOND).unlink()
    (folder / SECOND).mkdir()


def other_model(folder):
    save_file(ARRAYS, folder / "other.safetensors")
    (folder / INDEX).unlink()


def two_indices(folder):
    shutil.copy(folder / INDEX, folder / "fp16.safetensors.index.json")


def no_map(folder):
    (folder / INDEX).write_text("{}")


def no_json(folder):
    (folder / INDEX).write_text("{")


def twice(folder):
    (folder / INDEX).write_text(f'{{"weight_map": {{"fc1.bias": "{FIRST}", "fc1.bias": "{SECOND}"}}}}')


def other_format(folder):
    write_index(folder, {**HOLDER, "fc2.bias": "model.pkl"})


def no_text(folder):
    write_index(folder, {**HOLDER, "fc2.bias": 3})


def nothing(folder):
    for each in folder.iterdir():
        each.unlink()


FAULTS = [
    (
        outside,
        r"'fc2.weight' is in '\.\./model-00002\S*; a shard must be in the folder of its index, so write its name",
    ),
    (absolute, r"'fc1.weight' is in '/\S*; a shard must be in the folder of its index, so write its name alone"),
    (below, r"'fc2.weight' is in 'more/\S*; a shard must be in the folder of its index"),
    (missing, r"its shard model-00002-of-00002\.safetensors is missing"),
    (missing_without_index, "the names of its shards say that there are 2, and shard 2 is missing"),
    (missing_first, "the names of its shards say that there are 2, and shard 1 is missing"),
    (two_shards, "'fc1.bias' is in two shards, model-00001-of-00002.safetensors and model-00002-of-00002.safetensors"),
    (two_shards_without_index, "'fc1.bias' is in two shards"),
    (unnamed, r"model-00002-of-00002\.safetensors holds 'fc2.bias', which the index does not name"),
    (not_held, r"it says that 'fc3.bias' is in model-00002-of-00002\.safetensors, which does not hold it"),
    (elsewhere, r"it says that 'fc2.bias' is in model-00001-of-00002\.safetensors; it is in model-00002-of-00002"),
    (truncated, r"model-00002-of-00002\.safetensors: not a readable \.safetensors file, or truncated"),
    (damaged, r"model-00002-of-00002\.safetensors: not a readable \.safetensors file, or truncated"),
    (empty, r"model-00002-of-00002\.safetensors: it has 0 bytes, and no header"),
    (link, r"model-00002-of-00002\.safetensors is a link to \S+, outside of the folder; copy the file into the folder"),
    (linked_index, r"model\.safetensors\.index\.json is a link to \S+, outside of the folder"),
    (directory, r"its shard model-00002-of-00002\.safetensors is not a file"),
    (other_model, r"not the shards of one model \(other\.safetensors\), and no index says which belong together"),
    (two_indices, r"it has 2 indices \(fp16\.safetensors\.index\.json, model\.safetensors\.index\.json\); name one"),
    (no_map, r"index\.json: it has no weight_map"),
    (no_json, r"index\.json: not a readable index \(JSONDecodeError"),
    (twice, r"index\.json: it has 'fc1.bias' twice"),
    (other_format, r"'fc2.bias' is in 'model.pkl', which is not the name of a \.safetensors file"),
    (no_text, r"'fc2.bias' is in 3, which is not the name of a \.safetensors file"),
    (nothing, "the folder holds no .safetensors file and no index of such files"),
]


@pytest.mark.parametrize(("fault", "says"), FAULTS, ids=[fault.__name__ for fault, _ in FAULTS])
def test_a_fault_of_the_files_is_named(folder, fault, says):
    fault(folder)
    with pytest.raises(WeightsError, match=says) as raised:
        load_file(folder)
    assert str(folder) in str(raised.value)


def test_the_links_of_a_cache_of_hugging_face_are_followed(tmp_path):
    (tmp_path / "blobs").mkdir()
    (tmp_path / "snapshots").mkdir()
    folder = write_shards(tmp_path / "snapshots" / "main")
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.move(file, tmp_path / "blobs" / str(number))
        file.symlink_to(Path("../../blobs") / str(number))
    assert digest(convert_weights(folder, tmp_path / "read.npz")) == digest(ARRAYS)


def test_all_shards_together_have_the_limit_of_a_weight_file(folder):
    sizes = [(folder / shard).stat().st_size for shard in (FIRST, SECOND)]
    assert digest(load_file(folder, most=sum(sizes) / 1e9)) == digest(ARRAYS)
    with pytest.raises(WeightsError, match=r"the limit is 0\.0 GB; .* pass --max-weights 1"):
        load_file(folder, most=(sum(sizes) - 1) / 1e9)  # each shard alone is below it


def test_weights_are_not_written_to_shards(tmp_path):
    with pytest.raises(
        WeightsError, match=r"index\.json: weights are written to one file, e\.g\. .*model\.safetensors$"
    ):
        save_file(ARRAYS, tmp_path / INDEX)


READS = """
import re, sys, time
from pathlib import Path
from xverify.weights import load_file, npz
from xverify.worker import weight_files
from xverify.worker.state import State
from xverify.messages.weights import ReadFile

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) * 1024

if sys.argv[3] == "whole":
    weight_files.open_file = load_file
import safetensors
before = peak()
done = weight_files.WeightFileWork(State(time.perf_counter)).read_file(ReadFile(sys.argv[1], sys.argv[2], False, None))
assert not done.refused, done
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="the peak of a process is read from Linux's /proc")
@pytest.mark.parametrize("form", ["file", "folder"])
def test_reading_holds_one_array_at_a_time(tmp_path, form):
    """Measured in a process: 24 arrays of 8 MB each. When all are loaded, as by ``load_file``, the same test sees 192 MB."""
    each, count = 8 * 2**20, 24
    arrays = {f"layer{number}": np.full(each // 4, number + 1, np.float32) for number in range(count)}
    path = tmp_path / ("one.safetensors" if form == "file" else "many")
    if form == "file":
        save_file(arrays, path)
    else:
        path.mkdir()
        for number, (name, array) in enumerate(arrays.items(), 1):
            save_file({name: array}, path / f"model-{number:05}-of-{count:05}.safetensors")
    del arrays

    def peak(how):
        command = [sys.executable, "-c", READS, str(path), str(tmp_path / "read.npz"), how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    assert peak("whole") > 0.9 * count * each
    assert peak("one by one") < 4 * each  # the array, its mask of finite values, and the buffer of the writer


@pytest.mark.slow
def test_a_run_takes_a_folder_of_shards(folder, tmp_path, xverify):
    port = write_folder(tmp_path / "port")
    save_file(ARRAYS, tmp_path / "one.safetensors")
    found = {}
    for path in (tmp_path / "one.safetensors", folder, folder / INDEX):
        done = xverify("run", port, "--subjects", "numpy", "--no-timing", "--weights", path)
        assert done.code == 4, done.err  # the reference alone
        assert str(path) in done.out
        found[path] = done.result["weights"]["digest"]
    assert set(found.values()) == {digest(ARRAYS)}


@pytest.mark.parametrize(
    "fault", [outside, absolute, missing, two_shards, unnamed, damaged, link], ids=lambda fault: fault.__name__
)
def test_a_run_and_the_weights_command_refuse_a_fault(folder, tmp_path, xverify, fault):
    says = dict(FAULTS)[fault]
    fault(folder)
    port = write_folder(tmp_path / "port")
    for arguments in (
        ("run", port, "--subjects", "numpy", "--no-timing", "--weights", folder),
        ("weights", "digest", folder),
    ):
        done = xverify(*arguments)
        assert done.code == 2, done
        assert re.search(says, done.err), done.err
        assert str(folder) in done.err


@pytest.mark.slow
def test_the_weights_command_reads_shards(folder, tmp_path, xverify):
    one = tmp_path / "one.safetensors"
    done = xverify("weights", "convert", folder, one)
    assert done.code == 0, done.err
    done = xverify("weights", "digest", one, folder, folder / INDEX)
    assert done.code == 0, done.err
    assert {line.split()[0] for line in done.out.splitlines()} == {digest(ARRAYS)}
    done = xverify("weights", "diff", one, folder)
    assert done.code == 0, done.err
    done = xverify("weights", "convert", one, folder / INDEX)
    assert done.code == 2
    assert "weights are written to one file" in done.err
    assert (folder / INDEX).read_text().startswith('{"metadata"')


def test_a_path_that_is_neither_file_nor_folder_is_refused(tmp_path, xverify):
    done = xverify("run", "mlp", "--subjects", "numpy", "--weights", tmp_path / "nowhere")
    assert done.code == 2
    assert "nowhere: no such file or folder" in done.err
