"""Commands about weight files hold a few arrays at a time, and not the file; and see a fault in the last array of it."""

import json
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from xverify.errors import WeightsError
from xverify.processes.reading import convert_weights
from xverify.weights import digest, load_file, npz, open_file, safetensors, save_file

MIB = 2**20
EACH, COUNT = 6, 24  # MiB of an array, and arrays of a file
ROOM = EACH * COUNT // 2  # MiB that a command may take beyond what it takes with a small file
# The largest resident memory of a process that a command starts. This one is small, because its own memory counts, too.
PEAK = """
import resource, subprocess, sys
code = subprocess.call([sys.executable, "-m", "xverify", *sys.argv[1:]], stdout=2)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024)
"""


def run(*arguments):
    """(exit code, peak in MiB, what was printed) of a command."""
    command = [sys.executable, "-c", PEAK, *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    code, peak = map(int, done.stdout.split())
    return code, peak, done.stderr


def write(folder, form, stored):
    """Write a file of a suffix, or a folder of shards with two arrays in each. Returns what the user names."""
    folder.mkdir(exist_ok=True)
    if form != "shards":
        save_file(stored, folder / f"weights{form}")
        return folder / f"weights{form}"
    shards = {name: f"model-{1 + number // 2:05}-of-{len(stored) // 2:05}" for number, name in enumerate(stored)}
    for shard in set(shards.values()):
        save_file({name: stored[name] for name in stored if shards[name] == shard}, folder / f"{shard}.safetensors")
    index = {"weight_map": {name: f"{shard}.safetensors" for name, shard in shards.items()}}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    return folder


def arrays(last=0.0):
    """The arrays of a large file. last: what is added to the last value of the last one."""
    shape = (EACH * MIB // 1024, 256)
    found = {f"layer{number:02}.weight": np.full(shape, number + 1, np.float32) for number in range(COUNT)}
    found[f"layer{COUNT - 1:02}.weight"][-1, -1] += np.float32(last)
    return found


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    """What each command takes with a file of one small array, MiB."""
    folder = tmp_path_factory.mktemp("small")
    for name in ("a", "b"):
        save_file({"w": np.full(9, ord(name), np.float32)}, folder / f"{name}.safetensors")
    one, other = folder / "a.safetensors", folder / "b.safetensors"
    commands = (("digest", one), ("diff", one, other), ("convert", one, folder / "c.npz"))
    return {arguments[0]: run("weights", *arguments)[1] for arguments in commands}


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the unit of ru_maxrss is that of Linux")
@pytest.mark.parametrize("form", [".safetensors", ".npz", "shards"])
def test_a_file_is_larger_than_the_memory_that_a_command_takes(small, form, tmp_path):
    left, right = write(tmp_path / "left", form, arrays()), write(tmp_path / "right", form, arrays(last=0.5))
    code, peak, said = run("weights", "digest", left)
    assert (code, said.split()[0]) == (0, digest(arrays()))
    assert peak < small["digest"] + ROOM
    code, peak, said = run("weights", "diff", left, right)
    assert code == 1
    last = f"layer{COUNT - 1:02}.weight: 1 of {EACH * MIB // 4} values differ, most at [{EACH * 1024 - 1}, 255]: 24.0 and 24.5"
    assert said.startswith(last)
    assert said.endswith(f"1 of {COUNT} tensors differ\n")
    assert peak < small["diff"] + ROOM
    code, peak, said = run("weights", "convert", left, tmp_path / f"made{'.npz' if form == 'shards' else form}")
    assert code == 0
    assert f"{COUNT} tensors, {COUNT * EACH * MIB // 4:,} parameters, {digest(arrays())} (read back)" in said
    assert peak < small["convert"] + ROOM


def test_an_array_that_is_damaged_is_refused_when_it_is_read(tmp_path):
    """The error comes while the arrays before it are written already, and says the same as when all are read at once."""
    save_file({"first": np.ones(9, np.float32), "last": np.full(9, 2, np.float32)}, tmp_path / "w.npz")
    whole = bytearray((tmp_path / "w.npz").read_bytes())
    whole[whole.rindex(struct.pack("<f", 2))] ^= 1
    (tmp_path / "w.npz").write_bytes(whole)
    for read in (load_file, lambda path: convert_weights(path, tmp_path / "read.npz")):
        with pytest.raises(
            WeightsError, match=r"w\.npz: not a readable \.npz file, or truncated \(BadZipFile: Bad CRC"
        ):
            read(tmp_path / "w.npz")


def test_the_library_reads_every_dtype_that_is_written(tmp_path):
    from safetensors.numpy import load_file as load
    from safetensors.numpy import save_file as save

    stored = {f"of {code}": np.arange(6).astype(code).reshape(2, 3) for code in safetensors.DTYPES.values()}
    stored |= {"one": np.array(3, np.float32), "none": np.zeros((0, 4), np.float32)}
    safetensors.save_file(stored, tmp_path / "own.safetensors")
    save(stored, tmp_path / "theirs.safetensors")
    assert (tmp_path / "own.safetensors").stat().st_size == (tmp_path / "theirs.safetensors").stat().st_size
    odd = {"turned": np.asfortranarray(stored["of <f4"]), "big": stored["of <f4"].astype(">f4")}
    safetensors.save_file({**stored, **odd}, tmp_path / "own.safetensors")
    found = load(tmp_path / "own.safetensors")
    for name, array in {**stored, **odd}.items():
        np.testing.assert_array_equal(found[name], array)
        assert found[name].dtype == array.dtype.newbyteorder("<")
    with pytest.raises(WeightsError, match=r"w has dtype complex128, which is not written; known: F64, "):
        safetensors.save_file({"w": np.ones(2, complex)}, tmp_path / "w.safetensors")


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="what a process has mapped is read from Linux's /proc")
@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_a_checkpoint_of_torch_is_mapped_unless_it_is_compressed(tmp_path, compression):
    pytest.importorskip("torch")
    stored = {
        "a": np.arange(5, dtype=np.float32),
        "large": np.ones((300, 400), np.float32),
        "b": np.float32(2).reshape(()),
    }
    npz.save_file(stored, tmp_path / "w.npz")
    save_file(npz.OnDisk(tmp_path / "w.npz"), tmp_path / "w.pt")
    path = tmp_path / "other.pt"
    with zipfile.ZipFile(tmp_path / "w.pt") as source, zipfile.ZipFile(path, "w", compression) as target:
        for name in source.namelist():
            target.writestr(name.replace("w/", "other/", 1), source.read(name))
    found = open_file(path)
    assert (str(path) in Path("/proc/self/maps").read_text()) == (compression == zipfile.ZIP_STORED)
    assert digest(found) == digest(stored)
    kept = dict(found)
    del found
    assert str(path) not in Path("/proc/self/maps").read_text()
    assert digest(kept) == digest(stored)


def test_a_tensor_that_is_larger_than_its_record_is_refused(tmp_path):
    """torch maps what follows in the file, too, where it does not read the record."""
    torch = pytest.importorskip("torch")
    torch.save({"a": torch.zeros(5)}, tmp_path / "w.pt")
    with zipfile.ZipFile(tmp_path / "w.pt") as source, zipfile.ZipFile(tmp_path / "other.pt", "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name.endswith("data.pkl"):
                assert content.count(b"K\x05") == 2  # the values of the storage, and those of the tensor
                content = content.replace(b"K\x05", b"K\x08")
            target.writestr(name, content)
    with pytest.raises(WeightsError, match=r"other\.pt: not a readable \.pt file, .* does not match expected size"):
        load_file(tmp_path / "other.pt")


def test_a_checkpoint_of_another_byte_order_is_read(tmp_path):
    torch = pytest.importorskip("torch")
    stored = {"a": np.arange(5, dtype=np.float32)}
    torch.save({"a": torch.from_numpy(stored["a"].byteswap())}, tmp_path / "w.pt")
    other = {"little": "big", "big": "little"}[sys.byteorder]
    with zipfile.ZipFile(tmp_path / "w.pt") as source, zipfile.ZipFile(tmp_path / "other.pt", "w") as target:
        for name in source.namelist():
            target.writestr(name, other if name.endswith("byteorder") else source.read(name))
    assert digest(load_file(tmp_path / "other.pt")) == digest(stored)


def test_arrays_that_are_needed_together_share_the_mapping_of_their_file(tmp_path):
    stored = {f"{number}": np.full(npz.MAPPED, number, np.float32) for number in range(4)}
    stored |= {"turned": np.asfortranarray(np.arange(6.0).reshape(2, 3)), "one": np.float32(3).reshape(())}
    npz.save_file(stored, tmp_path / "w.npz")
    found = npz.OnDisk(tmp_path / "w.npz").together()
    assert len({id(array.base) for array in found.values()}) == 1
    assert digest(found) == digest(stored)
