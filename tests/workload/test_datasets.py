import gzip
from pathlib import Path

import numpy as np
import pytest

from xverify import ModelSpec, TensorSpec, reading
from xverify.errors import UsageError
from xverify.workload import datasets as data
from xverify.workload import probe
from xverify.workload.datafiles import check_labels

MLP = ModelSpec(inputs={"x": TensorSpec(("N", 784))}, outputs={"logits": TensorSpec(("N", 10))})
CNN = ModelSpec(inputs={"x": TensorSpec(("N", 1, 28, 28))}, outputs={"logits": TensorSpec(("N", 10))})
RGB = ModelSpec(inputs={"x": TensorSpec(("N", 3, 32, 32), layout="NCHW")}, outputs={"logits": TensorSpec(("N", 10))})


def language_model(high: int = 20, classes: int = 20, dtype: str = "int64", low: int = 0) -> ModelSpec:
    return ModelSpec(
        task="language-model",
        inputs={"tokens": TensorSpec(("N", 5), dtype, low, high)},
        outputs={"logits": TensorSpec(("N", 5, classes))},
    )


def same(first: data.Batches, second: data.Batches) -> bool:
    assert list(first.arrays) == list(second.arrays)
    return all(np.array_equal(array, second.arrays[key]) for key, array in first.arrays.items())


def idx(magic: int, array: np.ndarray) -> bytes:
    return np.array([magic, *array.shape], ">i4").tobytes() + array.astype(np.uint8).tobytes()


IMAGES = np.random.default_rng(0).integers(0, 256, (12, 28, 28))
LABELS = np.arange(12) % 10


@pytest.fixture
def mnist(tmp_path: Path) -> Path:
    (tmp_path / "train-images-idx3-ubyte").write_bytes(idx(2051, IMAGES))
    (tmp_path / "train-labels-idx1-ubyte").write_bytes(idx(2049, LABELS))
    return tmp_path


@pytest.fixture
def cifar(tmp_path: Path) -> Path:
    for n in range(1, 6):
        records = np.random.default_rng(n).integers(0, 256, (2, 3073), np.uint8)
        records[:, 0] = n
        (tmp_path / f"data_batch_{n}.bin").write_bytes(records.tobytes())
    return tmp_path


@pytest.fixture
def ptb(tmp_path: Path) -> Path:
    (tmp_path / "ptb.train.txt").write_text(" the cat sat on the mat \n a cat is a cat \n" * 4)
    return tmp_path


def message(directory: Path, spec: ModelSpec, batch: int = 4) -> str:
    with pytest.raises(UsageError) as raised:
        data.read(directory, spec, batch, seed=0, cases=1)
    return str(raised.value)


def refusal(spec: ModelSpec) -> str:
    with pytest.raises(UsageError) as raised:
        data.synthetic(spec, batch=4, seed=0, cases=1)
    return str(raised.value)


def test_synthetic_batches_are_the_probe_inputs_with_labels():
    batches = data.synthetic(MLP, batch=64, seed=3, cases=2)
    assert batches.kind == "synthetic, seed 3"
    for key, array in probe.inputs(MLP, 64, 3, 2).items():
        assert np.array_equal(batches.arrays[key], array)
    first, second = batches.arrays["0/target"], batches.arrays["1/target"]
    assert first.shape == (64,)
    assert first.dtype == np.int64
    assert set(first) | set(second) == set(range(10))
    assert not np.array_equal(first, second)


def test_the_batch_of_a_case_does_not_depend_on_other_cases():
    for spec in (MLP, language_model()):
        assert same(data.synthetic(spec, 4, 0, 2), data.synthetic(spec, 4, 0, 2))
        assert not same(data.synthetic(spec, 4, 0, 2), data.synthetic(spec, 4, 1, 2))
        longer = data.synthetic(spec, 4, 0, 3).arrays
        assert all(np.array_equal(array, longer[key]) for key, array in data.synthetic(spec, 4, 0, 2).arrays.items())


def test_a_language_models_label_is_the_next_token():
    arrays = data.synthetic(language_model(high=20, classes=24, dtype="int32", low=2), 64, 0, 1).arrays
    tokens, target = arrays["0/tokens"], arrays["0/target"]
    assert tokens.shape == target.shape == (64, 5)
    assert (tokens.dtype, target.dtype) == (np.int32, np.int64)
    assert np.array_equal(tokens[:, 1:], target[:, :-1])
    assert set(tokens.ravel()) == set(target.ravel()) == set(range(2, 20))
    assert tokens.flags.c_contiguous
    assert target.flags.c_contiguous


def test_sequence_labels_without_a_language_model_are_drawn():
    spec = ModelSpec(inputs={"x": TensorSpec(("N", 5, 8))}, outputs={"y": TensorSpec(("N", 5, 3))})
    target = data.synthetic(spec, 64, 0, 1).arrays["0/target"]
    assert target.shape == (64, 5)
    assert set(target.ravel()) == {0, 1, 2}


@pytest.mark.parametrize("shape", [("N",), (10, "N"), (10,)])
def test_an_output_without_classes_is_refused(shape):
    spec = ModelSpec(inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(shape)})
    assert "output 'y' is (" in refusal(spec)
    assert "e.g. (N, 10)" in refusal(spec)


def test_classes_on_another_axis_are_refused():
    spec = ModelSpec(inputs=RGB.inputs, outputs={"y": TensorSpec(("N", 2, 32, 32), layout="NCHW")})
    assert "output 'y' is (N, 2, 32, 32) in layout NCHW" in refusal(spec)


def test_two_outputs_are_refused():
    spec = ModelSpec(inputs=MLP.inputs, outputs={"a": TensorSpec(("N", 3)), "b": TensorSpec(("N", 4))})
    assert "the model has 2 outputs, a, b" in refusal(spec)


def test_an_input_with_the_name_of_the_labels_is_refused():
    spec = ModelSpec(inputs={"target": TensorSpec(("N", 8))}, outputs=MLP.outputs)
    assert "an input is called 'target'" in refusal(spec)


@pytest.mark.parametrize(("low", "high"), [(0, 21), (-1, 20)])
def test_a_token_without_a_class_is_refused(low, high):
    text = refusal(language_model(low=low, high=high))
    assert f"'tokens' takes tokens from {low} to {high - 1}, and the output has the classes 0 to 19" in text


@pytest.mark.parametrize(("labels", "first"), [([0, 2, 3, -1], "2 has the label 3"), ([0, -1], "1 has the label -1")])
def test_the_first_wrong_label_is_named(labels, first):
    with pytest.raises(UsageError, match=f"^here: item {first}, and the model has the classes 0 to 2: "):
        check_labels(np.array(labels), 3, "here")
    check_labels(np.array([0, 1, 2]), 3, "here")


def test_mnist_items_come_once_an_epoch_with_their_labels(mnist):
    batches = data.read(mnist, MLP, batch=4, seed=7, cases=6)
    order = "order shuffled by seed 7, values scaled to [0, 1]"
    assert batches.kind == f"MNIST-format IDX files in {mnist}: 12 items, {order}"
    rows = np.concatenate([batches.arrays[f"{case}/x"] for case in range(6)])
    labels = np.concatenate([batches.arrays[f"{case}/target"] for case in range(6)])
    assert rows.shape == (24, 784)
    assert (rows.dtype, labels.dtype) == (np.float32, np.int64)
    known = IMAGES.reshape(12, 784).astype(np.float32) / np.float32(255)
    chosen = [int(np.flatnonzero((known == row).all(axis=1))[0]) for row in rows]
    assert sorted(chosen[:12]) == list(range(12))
    assert chosen[:12] != list(range(12))
    assert chosen[12:] == chosen[:12]
    assert np.array_equal(labels, LABELS[chosen])


def test_an_epoch_may_end_within_a_batch(mnist):
    arrays = data.read(mnist, MLP, batch=8, seed=0, cases=2).arrays
    assert np.array_equal(arrays["1/x"][4:], arrays["0/x"][:4])


def test_the_order_of_items_depends_on_the_seed_alone(mnist):
    assert same(data.read(mnist, MLP, 4, 0, 3), data.read(mnist, MLP, 4, 0, 3))
    assert not same(data.read(mnist, MLP, 4, 0, 3), data.read(mnist, MLP, 4, 1, 3))


def test_images_keep_their_axes_where_the_model_takes_them(mnist):
    flat, square = (data.read(mnist, spec, 4, 0, 1).arrays for spec in (MLP, CNN))
    assert square["0/x"].shape == (4, 1, 28, 28)
    assert np.array_equal(flat["0/x"].reshape(4, 1, 28, 28), square["0/x"])


@pytest.mark.parametrize("mark", ["-", "."])
@pytest.mark.parametrize("packed", [False, True])
def test_mnist_files_may_have_several_names(mnist, tmp_path_factory, mark, packed):
    other = tmp_path_factory.mktemp("other")
    for path in mnist.iterdir():
        content = path.read_bytes()
        name = path.name.replace("-idx", f"{mark}idx") + (".gz" if packed else "")
        (other / name).write_bytes(gzip.compress(content) if packed else content)
    assert same(data.read(mnist, MLP, 4, 0, 3), data.read(other, MLP, 4, 0, 3))


@pytest.mark.parametrize("folder", ["", "cifar-10-batches-bin"])
def test_cifar_images_and_labels(cifar, folder):
    if folder:
        (cifar / folder).mkdir()
        for path in list(cifar.glob("*.bin")):
            path.rename(cifar / folder / path.name)
    batches = data.read(cifar, RGB, batch=10, seed=0, cases=1)
    assert "CIFAR-10 binary files" in batches.kind
    assert "10 items" in batches.kind
    images, labels = batches.arrays["0/x"], batches.arrays["0/target"]
    assert images.shape == (10, 3, 32, 32)
    assert (images.dtype, labels.dtype) == (np.float32, np.int64)
    content = (cifar / folder / "data_batch_3.bin").read_bytes()
    of_three = {round(float(image[1, 0, 2]) * 255) for image in images[labels == 3]}
    assert of_three == {content[1 + 1024 + 2], content[3073 + 1 + 1024 + 2]}


def test_ptb_words_are_numbered_and_cut_in_tracks(ptb):
    batches = data.read(ptb, language_model(dtype="int32"), batch=2, seed=0, cases=7)
    # 13 words a pair of lines: cat 3, <eos> 2, a 2, the 2, is 1, mat 1, on 1, sat 1.
    numbers = {word: n for n, word in enumerate(["cat", "<eos>", "a", "the", "is", "mat", "on", "sat"])}
    text = "the cat sat on the mat <eos> a cat is a cat <eos>"
    stream = np.array([numbers[word] for word in (text.split() * 4)]).reshape(2, 26)
    for case in range(7):
        start = 5 * (case % 5)
        tokens, target = batches.arrays[f"{case}/tokens"], batches.arrays[f"{case}/target"]
        assert (tokens.dtype, target.dtype) == (np.int32, np.int64)
        assert np.array_equal(tokens, stream[:, start : start + 5])
        assert np.array_equal(target, stream[:, start + 1 : start + 6])
    where = ptb / "ptb.train.txt"
    assert batches.kind == f"PTB text {where}: 52 words, 8 distinct, in the text's order in 2 parallel tracks"


def test_a_folder_that_does_not_exist(tmp_path):
    text = message(tmp_path / "none", MLP)
    assert f"{tmp_path / 'none'}: no such folder" in text
    assert "MNIST-format IDX files or CIFAR-10 binary files or PTB text" in text


def test_a_folder_without_a_data_set_is_reported_with_its_content(tmp_path):
    assert "it holds nothing. " in message(tmp_path, MLP)
    for n in range(12):
        (tmp_path / f"{n:02}.txt").touch()
    text = message(tmp_path, MLP)
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "data_batch_1.bin", "ptb.train.txt", "08.txt"):
        assert name in text
    assert "09.txt and 2 more" in text


def test_a_missing_file_of_a_data_set_is_named(mnist):
    (mnist / "train-labels-idx1-ubyte").unlink()
    text = message(mnist, MLP)
    assert "MNIST-format IDX files (no train-labels-idx1-ubyte);" in text
    assert "it holds train-images-idx3-ubyte." in text


def test_two_data_sets_in_a_folder(mnist, ptb):
    assert "holds MNIST-format IDX files and PTB text: give each" in message(mnist, MLP)


@pytest.mark.parametrize("length", [3, 10, 16 + 12 * 784 - 1, 16 + 12 * 784 + 1])
def test_an_idx_file_of_another_length(mnist, length):
    path = mnist / "train-images-idx3-ubyte"
    path.write_bytes((path.read_bytes() + b"\0")[:length])
    expected = 16 + 12 * 784 if length >= 16 else 16
    assert f"{path}: expected {expected} bytes, found {length}: " in message(mnist, MLP)


def test_a_gzip_file_that_is_cut_short(mnist):
    path = mnist / "train-images-idx3-ubyte"
    packed = mnist / f"{path.name}.gz"
    content = gzip.compress(path.read_bytes())
    path.unlink()
    packed.write_bytes(content[: len(content) // 2])
    assert f"{packed}: expected {16 + 12 * 784} bytes when decompressed, found " in message(mnist, MLP)


@pytest.mark.parametrize("place", [0, -6])
def test_a_damaged_gzip_file(mnist, place):
    path = mnist / "train-labels-idx1-ubyte"
    content = bytearray(gzip.compress(path.read_bytes()))
    path.unlink()
    content[place] ^= 0xFF
    (mnist / f"{path.name}.gz").write_bytes(content)
    assert f"{path}.gz is not a valid gzip file" in message(mnist, MLP)


def test_a_file_that_cannot_be_read(mnist, monkeypatch):
    def refuse(path):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(reading, "opened", refuse)
    assert f"{mnist / 'train-images-idx3-ubyte'}: Permission denied" in message(mnist, MLP)


@pytest.mark.parametrize(("name", "magic"), [("train-images-idx3-ubyte", 2051), ("train-labels-idx1-ubyte", 2049)])
def test_a_wrong_magic_number(mnist, name, magic):
    path = mnist / name
    path.write_bytes(b"\0\0\x0d\x03" + path.read_bytes()[4:])
    assert f"{path}: its magic number is 3331, this file's is {magic}" in message(mnist, MLP)


def test_labels_in_place_of_images(mnist):
    path = mnist / "train-images-idx3-ubyte"
    path.write_bytes((mnist / "train-labels-idx1-ubyte").read_bytes())
    assert f"{path}: its magic number is 2049, this file's is 2051" in message(mnist, MLP)


def test_different_numbers_of_labels_and_images(mnist):
    path = mnist / "train-labels-idx1-ubyte"
    path.write_bytes(idx(2049, LABELS[:11]))
    assert f"holds 12 images, {path} 11 labels" in message(mnist, MLP)


def test_a_label_without_a_class(mnist):
    spec = ModelSpec(inputs=MLP.inputs, outputs={"logits": TensorSpec(("N", 9))})
    path = mnist / "train-labels-idx1-ubyte"
    assert f"{path}: item 9 has the label 9, and the model has the classes 0 to 8" in message(mnist, spec)


def test_a_cifar_label_without_a_class(cifar):
    spec = ModelSpec(inputs=RGB.inputs, outputs={"logits": TensorSpec(("N", 4))})
    assert f"{cifar / 'data_batch_4.bin'}: item 0 has the label 4" in message(cifar, spec)


@pytest.mark.parametrize("length", [0, 3000, 3073])
def test_a_cifar_file_that_is_cut_short(cifar, length):
    path = cifar / "data_batch_2.bin"
    path.write_bytes(path.read_bytes()[:length])
    assert f"{path}: expected {2 * 3073} bytes, found {length}: " in message(cifar, RGB)


def test_the_first_cifar_file_is_cut_within_a_record(cifar):
    for path in cifar.glob("*.bin"):
        path.write_bytes(path.read_bytes()[:4000])
    assert f"{cifar / 'data_batch_1.bin'}: expected {2 * 3073} bytes, found 4000: " in message(cifar, RGB)


def test_a_missing_cifar_file_is_named(cifar):
    (cifar / "data_batch_5.bin").unlink()
    assert "CIFAR-10 binary files (no data_batch_5.bin)" in message(cifar, RGB)


def test_images_that_do_not_fit_the_input(mnist):
    text = message(mnist, RGB)
    assert (
        "holds images of 1×28×28, for float (N, 1, 28, 28) or (N, 784); the model's 'x' is float32 (N, 3, 32, 32)"
        in text
    )


def test_images_do_not_fit_an_input_of_integers(mnist):
    spec = ModelSpec(inputs={"x": TensorSpec(("N", 784), "int64", 0, 256)}, outputs=MLP.outputs)
    assert "the model's 'x' is int64 (N, 784)" in message(mnist, spec)


def test_images_do_not_fit_labels_for_every_token(mnist):
    spec = ModelSpec(inputs=MLP.inputs, outputs={"logits": TensorSpec(("N", 5, 10))})
    assert "holds one label an image, for float (N, 10); the model's 'logits' is float32 (N, 5, 10)" in message(
        mnist, spec
    )


def test_images_for_a_model_of_two_inputs(mnist):
    spec = ModelSpec(inputs={"x": TensorSpec(("N", 784)), "y": TensorSpec(("N", 3))}, outputs=MLP.outputs)
    assert "the model has 2 inputs, x, y" in message(mnist, spec)


def test_a_batch_larger_than_the_data_set(mnist):
    assert f"{mnist} holds 12 items, and a batch takes 13: " in message(mnist, MLP, batch=13)


@pytest.mark.parametrize(("spec", "shown"), [(MLP, "float32 (N, 784)"), (RGB, "float32 (N, 3, 32, 32)")])
def test_words_that_do_not_fit_the_input(ptb, spec, shown):
    text = message(ptb, spec)
    assert "holds words, for integers (N, " in text
    assert f"the model's 'x' is {shown}" in text


def test_words_do_not_fit_one_label_a_sequence(ptb):
    spec = ModelSpec(inputs=language_model().inputs, outputs={"logits": TensorSpec(("N", 20))})
    assert "holds a label a word, for float (N, 5, 20); the model's 'logits' is float32 (N, 20)" in message(ptb, spec)


@pytest.mark.parametrize("limits", [{"high": 7}, {"classes": 7}, {"low": 1}])
def test_words_without_a_number_or_a_class(ptb, limits):
    text = message(ptb, language_model(**limits))
    assert "holds 8 distinct words, numbered from 0; the model's 'tokens' takes" in text
    assert "and its output has" in text


def test_too_few_words_for_one_batch(ptb):
    assert "holds 52 words, and one batch of 9 takes 54" in message(ptb, language_model(), batch=9)
    data.read(ptb, language_model(), batch=8, seed=0, cases=2)


def test_text_of_another_encoding(ptb):
    (ptb / "ptb.train.txt").write_bytes(b"caf\xe9 \n")
    assert f"{ptb / 'ptb.train.txt'} is not UTF-8 text" in message(ptb, language_model())
