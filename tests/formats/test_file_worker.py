"""The worker of a model file, with a format that needs no framework: messages, conversions, and files that break it."""

import sys

import numpy as np
import pytest

from xverify.errors import Crashed, Failed, NotInstalled, TimedOut
from xverify.framework import formats
from xverify.framework.modelfile import Signature, Tensor
from xverify.messages import Block, Build, Prepare, Start
from xverify.messages.files import Compute, ReadSignature
from xverify.processes.worker import Worker
from xverify.weights import npz
from xverify.worker.session import Session

FORMAT = '''
"""A file with the word that says what opening it does."""
import os, time
import numpy as np
from xverify.errors import Unsupported
from xverify.framework.modelfile import ModelFile, Signature, Tensor

def twice(framework, model, example):
    return lambda x, ids: {"y": 2 * x, "kind": np.array([x.dtype.itemsize, ids.dtype.itemsize])}

class Adapter(ModelFile):
    name, title, runtime, extra = "sample", "sample file", "sampler", "litert"
    needs = {"numpy": "numpy"}
    modes = {"twice": twice}

    def __init__(self, threads, device):
        pass

    @classmethod
    def recognises(cls, path):
        return path.read_bytes().startswith(b"sample")

    @classmethod
    def describe_risk(cls, path):
        return "it holds code" if b"code" in path.read_bytes() else ""

    def open(self, path, options, float64):
        word = path.read_text().split()[1]
        if word == "lines":
            raise ValueError(f"cannot read {path}\\n  because\\n  of this")
        if word == "memory":
            raise MemoryError("9 TB")
        if word == "ends":
            os._exit(3)
        if word == "hangs":
            time.sleep(60)
        return word, float64

    def signature(self, model):
        found = Signature(
            (Tensor("x", ("batch", None, 2), "float32"), Tensor("ids", None, "int32")), (Tensor("y", None, "float32"),)
        )
        return found.as_float64() if model[1] else found

    def to_native(self, array, layout):
        return array

    to_numpy = to_native

    def wait(self, outputs):
        pass

    def environment(self):
        return {}
'''


@pytest.fixture
def opened(tmp_path, monkeypatch):
    """Start a worker and build a file with this word."""
    (tmp_path / "formats").mkdir()
    monkeypatch.setenv("XVERIFY_FORMATS", str(tmp_path / "formats"))
    workers = []

    def start(word, source=FORMAT, timeout=60.0, **options):
        (tmp_path / "formats" / "sample.py").write_text(source)
        formats.discovery.load_file.cache_clear()
        path = tmp_path / "model.any"
        path.write_text(f"sample {word}")
        (tmp_path / "worker").mkdir(exist_ok=True)
        form = formats.recognise(path)
        workers.append(Worker(form, sys.executable, tmp_path / "worker", 1, "cpu", 60.0))
        workers[-1].start()
        workers[-1].timeout = timeout
        workers[-1].ask(Build(str(path), options, None, {}, {}, {}))
        return workers[-1]

    yield start
    for worker in workers:
        worker.close()


def given(tmp_path, **arrays):
    npz.save_file({f"0/{name}": array for name, array in arrays.items()}, tmp_path / "in.npz")
    return str(tmp_path / "in.npz")


def test_signature_outputs_and_timed_calls(opened, tmp_path):
    worker = opened("good")
    inputs = (Tensor("x", ("batch", None, 2), "float32"), Tensor("ids", None, "int32"))
    assert worker.ask(ReadSignature()) == Signature(inputs, (Tensor("y", None, "float32"),))
    path = given(tmp_path, x=np.ones((1, 1, 2)), ids=np.array([3]))
    computed = worker.ask(Compute(path, str(tmp_path / "out.npz")))
    outputs = npz.load_file(tmp_path / "out.npz")
    assert computed.shapes == {"0/y": (1, 1, 2), "0/kind": (2,)}
    assert computed.dtypes["0/y"] == "float32"
    assert outputs["0/kind"].tolist() == [4, 4]  # float64 became float32, and int64 became int32
    worker.ask(Compute(path, str(tmp_path / "out.npz"), float64=True))
    assert npz.load_file(tmp_path / "out.npz")["0/kind"].tolist() == [8, 4]
    # The same file as a subject that is timed.
    worker.ask(Prepare(path, "twice"))
    assert worker.ask(Block(0, 3, str(tmp_path / "kept.npz"))).seconds > 0
    assert npz.load_file(tmp_path / "kept.npz")["0/kind"].tolist() == [4, 4]


def test_inputs_that_are_missing_or_of_another_kind(opened, tmp_path):
    worker = opened("good")
    out = str(tmp_path / "out.npz")
    with pytest.raises(Failed, match="case 0 has no array for the input 'ids'"):
        worker.ask(Compute(given(tmp_path, x=np.ones(2)), out))
    with pytest.raises(Failed, match="input 'ids' takes int32, and the array that was given is float64"):
        worker.ask(Compute(given(tmp_path, x=np.ones(2), ids=np.ones(2)), out))


@pytest.mark.parametrize(
    ("word", "kind", "says"),
    [
        ("lines", Failed, r"^model.any: sampler cannot open this sample file: ValueError: cannot read model.any$"),
        ("memory", Failed, r"^model.any: there is not enough memory to open this sample file$"),
        ("ends", Crashed, r"^exited with status 3 while building the model"),
        (
            "code",
            Failed,
            r"^model.any is not opened, because it holds code. If you trust its author, say so with --trust$",
        ),
    ],
)
def test_a_file_that_cannot_be_opened_is_one_line(opened, word, kind, says):
    with pytest.raises(kind, match=says):
        opened(word)


def test_a_file_that_is_trusted_is_opened(opened):
    assert opened("code", trust=True).ask(ReadSignature()).inputs


def test_a_file_that_never_opens_ends_at_the_timeout(opened):
    with pytest.raises(TimedOut, match="building the model took over 1 s"):
        opened("hangs", timeout=1.0)


def test_a_missing_package_says_what_to_install(opened):
    absent = FORMAT.replace('"numpy": "numpy"', '"absent-package": "absent_package"').replace(
        "        pass\n\n    @classmethod\n    def recognises",
        "        import absent_package\n\n    @classmethod\n    def recognises",
    )
    with pytest.raises(NotInstalled) as raised:
        opened("good", absent)
    assert "absent_package is not installed in" in str(raised.value)
    assert str(raised.value).endswith("type: pip install absent-package")


def test_a_framework_opens_no_model_files():
    session = Session()
    session.ask(Start("numpy", 1, "cpu"))
    with pytest.raises(Failed, match="numpy does not open model files"):
        session.ask(ReadSignature())
