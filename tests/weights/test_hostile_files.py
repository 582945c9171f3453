"""Weight files that are damaged on purpose: what they declare is checked before it is read."""

import pickle
import struct
import subprocess
import sys
import zipfile

import numpy as np
import pytest

from xverify.errors import NotWritten, WeightsError
from xverify.processes.reading import convert_weights, write_weights
from xverify.weights import load_file, npz, save_file

pytestmark = pytest.mark.usefixtures("in_one_process")

ONES = np.ones(6, np.float32).reshape(2, 3)


class Calls:
    def __init__(self, function, *arguments):
        self.call = function, arguments

    def __reduce__(self):
        return self.call


def write_archive(path, *members):
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members:
            archive.writestr(name, content)


def member(descr="'<f4'", shape="(2,)", content=bytes(8)):
    said = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(said)) + said + content


def test_what_a_file_declares_has_a_limit_that_an_option_raises(tmp_path):
    np.savez(tmp_path / "w.npz", w=np.ones(300_000, np.float32))
    with pytest.raises(
        WeightsError, match=r"take 0.0 GB or more, and the limit is 0.0 GB; .* pass --max-weights 1 or a larger"
    ):
        load_file(tmp_path / "w.npz", most=0.001)
    assert load_file(tmp_path / "w.npz", most=1)["w"].size == 300_000
    with zipfile.ZipFile(tmp_path / "w.npz", "a") as archive:
        archive.infolist()[0].file_size = 6 * 10**9
        archive._didModify = True
    with pytest.raises(WeightsError, match=r"take 6.0 GB or more, and the limit is 1.0 GB; .* --max-weights 6"):
        load_file(tmp_path / "w.npz")


def test_the_limit_of_a_large_file_is_twice_its_size(tmp_path):
    from xverify.weights.room import LEAST, Room

    (tmp_path / "small").write_bytes(b"x")
    with (tmp_path / "large").open("wb") as file:
        file.truncate(LEAST)
    assert Room(tmp_path / "small").most == LEAST
    assert Room(tmp_path / "large").most == 2 * LEAST
    assert Room(tmp_path / "small", beside=[tmp_path / "large"] * 2).most == 2 * LEAST + 2


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (member(shape="(3,)"), r"has 8 bytes, and its shape \(3,\) of float32 says otherwise"),
        (member(shape="(-2,)"), "says otherwise"),
        (member(shape="(99999999999999,)"), "says otherwise"),
        (member("'|O'"), "has dtype object"),
        (member("[('a', '<f4')]"), "has dtype"),
        (member("'<U1'"), "has dtype"),
        (b"\x93NUMPY\x03\x00" + bytes(20), "version"),
        (b"hello", "not a readable .npz file"),
    ],
)
def test_an_array_is_made_of_a_shape_numbers_and_bytes_that_fit(tmp_path, content, says):
    write_archive(tmp_path / "w.npz", ("w.npy", content))
    with pytest.raises(WeightsError, match=says):
        load_file(tmp_path / "w.npz")


def test_names_that_occur_twice_are_refused(tmp_path):
    with pytest.warns(UserWarning, match="Duplicate"):
        write_archive(tmp_path / "w.npz", ("w.npy", member()), ("w.npy", member()))
    with pytest.raises(WeightsError, match="two arrays have the name 'w'"):
        load_file(tmp_path / "w.npz")
    entry = '"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}'
    header = f"{{{entry}, {entry}}}".encode()
    (tmp_path / "w.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + bytes(8))
    with pytest.raises(WeightsError, match="two arrays have the name 'w'"):
        load_file(tmp_path / "w.safetensors")
    onnx = pytest.importorskip("onnx")
    tensor = onnx.numpy_helper.from_array(ONES, "w")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], [tensor, tensor])), tmp_path / "w.onnx")
    with pytest.raises(WeightsError, match="two initializers have the name 'w'"):
        load_file(tmp_path / "w.onnx")


@pytest.mark.parametrize(
    ("stored", "says"),
    [
        ({"w": Calls(np.ndarray, (1000,))}, r"w\.pkl: "),
        ({"w": Calls(np.empty(0).__reduce__()[0], np.ndarray, (1000,), b"f")}, "'w' is a NoneType, not an array"),
        ({"w": np.array([{}], object)}, "it holds an array of dtype 'O8', which is no plain number"),
        ({"w": np.zeros(2, "f4,i4")}, "it holds an array of dtype 'V8', which is no plain number"),
        ({1: ONES, "1": ONES}, "the name 1 is a int, not a text"),
        ({"w": "text"}, "'w' is a str, not an array"),
    ],
)
def test_a_pickle_holds_names_and_plain_arrays(tmp_path, stored, says):
    (tmp_path / "w.pkl").write_bytes(pickle.dumps(stored, 4))
    with pytest.raises(WeightsError, match=says):
        load_file(tmp_path / "w.pkl")


def test_a_forged_dtype_makes_no_array(tmp_path):
    """With numpy's own functions, an object dtype over the bytes of floats is an array of pointers, which crashes the process."""
    good = pickle.dumps({"w": np.ones(4)}, 4)
    assert good.count(b"f8") == 1
    (tmp_path / "w.pkl").write_bytes(good.replace(b"f8", b"O8"))
    code = f"from xverify.weights import load_file; load_file({str(tmp_path / 'w.pkl')!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1, done
    assert "which is no plain number" in done.stderr


def test_every_dtype_that_jittor_writes_is_read(tmp_path):
    for dtype in ("float16", "float32", "float64", ">f4", "int32"):
        for array in (
            np.arange(6).reshape(2, 3).astype(dtype),
            np.asfortranarray(np.arange(6).reshape(2, 3).astype(dtype)),
        ):
            (tmp_path / "w.pkl").write_bytes(pickle.dumps({"w": array, "s": np.float32(2)}, 4))
            found = load_file(tmp_path / "w.pkl")
            np.testing.assert_array_equal(found["w"], np.arange(6).reshape(2, 3))
            assert found["s"] == 2


@pytest.mark.parametrize(
    ("values", "dtype", "changed"),
    [([2**24 + 1, 1], np.int64, 1), ([2**53 + 1], np.int64, 1), ([-(2**53) - 1, 2**60], np.int64, 1),
     ([2**63 + 1], np.uint64, 1), ([2**62, -(2**62), 7], np.int64, 0)],
)  # fmt: skip
def test_whole_numbers_must_be_exact_in_float32(tmp_path, values, dtype, changed):
    np.savez(tmp_path / "w.npz", w=np.array(values, dtype))
    if changed:
        with pytest.raises(WeightsError, match=f"{changed} of {len(values)} values change when rounded to float32"):
            load_file(tmp_path / "w.npz")
    else:
        assert [int(value) for value in load_file(tmp_path / "w.npz")["w"]] == values


@pytest.mark.slow
def test_a_tensor_of_torch_is_no_larger_than_it_may_be(tmp_path):
    torch = pytest.importorskip("torch")
    torch.save({"w": torch.zeros(1).expand(800_000_000)}, tmp_path / "w.pt")
    with pytest.raises(WeightsError, match=r"take 3.2 GB or more, and the limit is 1.0 GB"):
        load_file(tmp_path / "w.pt")
    torch.save({1: torch.ones(2)}, tmp_path / "w.pt")
    with pytest.raises(WeightsError, match="the name 1 is a int, not a text"):
        load_file(tmp_path / "w.pt")
    torch.save({"w": torch.eye(2).to_sparse()}, tmp_path / "w.pt")
    with pytest.raises(WeightsError, match="sparse"):
        load_file(tmp_path / "w.pt")


@pytest.mark.parametrize(
    ("place", "form", "value", "says"),
    [
        (38, "<I", 0x10, "is a folder with content"),  # torch reads nothing, and shows what was in memory before
        (10, "<H", 8, "cannot be read: Error -3 while decompressing data"),  # it says so, and torch does not look
        (16, "<I", 1, "cannot be read: Bad CRC-32"),
        (20, "<I", 0, "cannot be read: Bad CRC-32"),
    ],
)
def test_an_archive_that_torch_misreads_is_refused(tmp_path, place, form, value, says):
    """place: of a changed field in the record of the archive's directory about the one tensor."""
    path = tmp_path / "weights.pt"
    save_file({"a": np.arange(5, dtype=np.float32)}, path)
    content = bytearray(path.read_bytes())
    record = content.rindex(b"PK\x01\x02", 0, content.rindex(b"/data/0"))
    struct.pack_into(form, content, record + place, value)
    path.write_bytes(content)
    with pytest.raises(WeightsError, match=f"the member 'weights/data/0' of the archive {says}"):
        load_file(path)


def test_a_file_is_read_in_another_process(tmp_path):
    """Its end is an error like any other, and nothing that it does happens in this process."""
    import os

    (tmp_path / "w.pkl").write_bytes(pickle.dumps({"w": Calls(os.abort)}, 4))
    with pytest.raises(WeightsError, match=r"w\.pkl: killed by SIGABRT while reading the weight file"):
        convert_weights(tmp_path / "w.pkl", tmp_path / "read.npz", trust=True)
    with pytest.raises(WeightsError, match="could run any code"):
        convert_weights(tmp_path / "w.pkl", tmp_path / "read.npz")
    npz.save_file({"w": ONES}, tmp_path / "ones.npz")
    write_weights(tmp_path / "ones.npz", tmp_path / "w.npz")
    np.testing.assert_array_equal(convert_weights(tmp_path / "w.npz", tmp_path / "read.npz")["w"], ONES)
    with pytest.raises(NotWritten, match=r"w\.npz cannot be written: No such file"):
        write_weights(tmp_path / "ones.npz", tmp_path / "missing" / "w.npz")


def test_the_parent_never_opens_a_weight_file(tmp_path, xverify):
    """Neither of `weights`, for which a pickle that ends its process is one line, nor of `run`."""
    import os

    (tmp_path / "w.pkl").write_bytes(pickle.dumps({"w": Calls(os._exit, 0)}, 4))
    save_file({"w": ONES}, tmp_path / "right.npz")
    file, right = tmp_path / "w.pkl", tmp_path / "right.npz"
    for arguments in (
        ("digest", file),
        ("convert", file, tmp_path / "o.npz"),
        ("diff", file, right),
        ("diff", right, file),
    ):
        done = xverify("weights", *arguments, "--trust")
        assert done.code == 2
        assert "w.pkl: exited with status 0 while reading the weight file" in done.err
        assert len(done.err.strip().splitlines()) == 1
    from conftest import write_folder

    done = xverify("run", write_folder(tmp_path / "port"), "--subjects", "numpy", "--weights", file, "--trust")
    assert done.code == 2
    assert "w.pkl: exited with status 0 while reading the weight file" in done.err
