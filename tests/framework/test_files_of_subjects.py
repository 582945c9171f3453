"""Subjects that name a file anywhere: how they are written, and which framework their file is of. Nothing is imported."""

import pytest

from xverify.errors import UsageError
from xverify.framework import ports
from xverify.framework.discovery import framework_of, load, named, parse_subject

TORCH = "from torch import nn\n\n\ndef build():\n    return nn.Linear(8, 3)\n"


@pytest.fixture
def here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("port=a.py", ("port", "", "a.py", "build", "")),
        ("port=a/b.py:make", ("port", "", "a/b.py", "make", "")),
        ("port=a.py@compile", ("port", "", "a.py", "build", "compile")),
        ("port=torch:a.py:compile@channels-last", ("port", "torch", "a.py", "compile", "channels-last")),
        ("v1.2=/x y/a.py.py:Net", ("v1.2", "", "/x y/a.py.py", "Net", "")),
        (" port=keras-jax:a.py ", ("port", "keras-jax", "a.py", "build", "")),
        ("port=a.onnx", ("port", "", "a.onnx", "build", "")),
        ("port=onnxruntime:a.onnx@basic", ("port", "onnxruntime", "a.onnx", "build", "basic")),
        ("model=a/b-Q4_0.gguf", ("model", "", "a/b-Q4_0.gguf", "build", "")),
    ],
)
def test_a_subject_is_read_and_written_again(text, parts):
    port = ports.parse(text)
    assert (port.name, port.framework, str(port.path), port.function, port.mode) == parts
    assert ports.parse(str(port)) == port


def test_a_subject_of_a_framework_names_no_file():
    assert ports.parse("torch:eager") is None


@pytest.mark.parametrize("text", ["port=a.txt", "port=a.py:build:compile", "port=", "=a.py", ".x=a.py", "a b=a.py"])
def test_a_subject_of_no_known_form_shows_the_form(text):
    with pytest.raises(UsageError, match=r"write NAME=\[FRAMEWORK:\]FILE.py\[:FUNCTION\]\[@MODE\]"):
        ports.parse(text)


@pytest.mark.parametrize(
    ("code", "framework"),
    [
        (TORCH, "torch"),
        ("import keras\n\n\ndef build():\n    return keras.Model()\n", "tensorflow"),
        ("import jax\nfrom flax import nnx\n\n\nclass build(nnx.Module):\n    f = jax.jit\n", "flax"),
        ("import jax.numpy as jnp\n\n\ndef build():\n    return jnp\n", "jax"),
        ("import numpy as np\nimport jittor as jt\n\n\ndef build():\n    return jt.nn.Linear(np.int32(8), 3)\n", "jittor"),
        ("import numpy as np\n\n\ndef build():\n    return np.zeros\n", "numpy"),
        ("def build():\n    from transformers import AutoModel\n\n    return AutoModel\n", "torch"),
        # The function uses one of two frameworks, by way of a class that another statement defines.
        ("import torch\nimport paddle\n\n\nclass Net(paddle.nn.Layer):\n    pass\n\n\ndef build():\n    return Net()\n", "paddle"),
        # The module imports a framework, and the function shows nothing.
        ("import torch\n\n\ndef build():\n    return open\n", "torch"),
    ],
)  # fmt: skip
def test_the_framework_is_that_of_the_libraries_which_the_function_uses(here, code, framework):
    (here / "a.py").write_text(code)
    adapter, mode = parse_subject("port=a.py")
    assert adapter.name == framework
    assert adapter.label(mode) == "port"


def test_the_framework_of_a_file_that_is_no_code_is_told_by_its_suffix(here):
    (here / "a.gguf").write_bytes(b"GGUF")
    adapter, mode = parse_subject("model=a.gguf")
    assert (adapter.name, mode, adapter.label(mode), adapter.file_name()) == ("llamacpp", "eager", "model", "a.gguf")
    assert str(ports.parse("model=a.gguf")) == "model=a.gguf"


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("model=b.gguf", r"--subjects model=b\.gguf: no such file.*: b\.gguf"),
        ("model=a.gguf:make", r"a\.gguf is no code, and has no 'make': leave it out"),
        ("model=torch:a.gguf", r"a file of torch ends with \.py, not \.gguf"),
        ("model=llamacpp:a.py", r"a file of llamacpp ends with \.gguf, not \.py"),
    ],
)
def test_a_file_that_is_no_code_and_cannot_be_read_is_one_clear_line(here, text, says):
    (here / "a.gguf").write_bytes(b"GGUF")
    (here / "a.py").write_text(TORCH)
    with pytest.raises(UsageError, match=says):
        parse_subject(text)


def test_the_framework_is_found_in_the_files_beside(here):
    (here / "layers.py").write_text("import tensorflow\nimport torch\n\n\nclass Net(torch.nn.Module):\n    pass\n")
    for line in ("from layers import Net", "from .layers import Net", "from .layers import *"):
        (here / "a.py").write_text(f"{line}\n\n\ndef build():\n    return Net()\n")
        if line.endswith("*"):
            with pytest.raises(UsageError, match=r"a\.py uses tensorflow and torch; name the framework of the port"):
                parse_subject("port=a.py")
        else:
            assert parse_subject("port=a.py")[0].name == "torch"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("def build():\n    return 1\n", r"imports no framework .* name the framework of the port, e.g. port=torch:a.py:build"),
        ("import torch, jittor\n\n\ndef build():\n    return torch, jittor\n", "uses jittor and torch; name the framework"),
        ("def biuld():\n    return 1\n", "a.py has no 'build'; did you mean 'biuld'"),
        ("def build(:\n", "a.py:1: SyntaxError"),
    ],
)  # fmt: skip
def test_what_does_not_tell_a_framework_is_refused(here, code, says):
    (here / "a.py").write_text(code)
    with pytest.raises(UsageError, match=says):
        parse_subject("port=a.py")


def test_a_file_that_is_not_there_is_refused(here):
    with pytest.raises(UsageError, match=r"--subjects port=a\.py:build: no such file: a\.py"):
        parse_subject("port=a.py")


def test_names_that_the_syntax_does_not_show_are_left_to_the_import(here):
    (here / "a.py").write_text("from torch.nn import *\n")
    ports.check(ports.parse("port=a.py:Linear"))
    (here / "a.py").write_text("import torch\n")
    with pytest.raises(UsageError, match="has no 'Linear'"):
        ports.check(ports.parse("port=a.py:Linear"))


def test_a_mode_other_than_the_default_is_in_the_label(here):
    (here / "a.py").write_text(TORCH)
    labels = [adapter.label(mode) for adapter, mode in map(parse_subject, ("port=a.py@eager", "port=a.py@compile"))]
    assert labels == ["port", "port:compile"]
    with pytest.raises(UsageError, match=r"unknown mode 'graph' of port\. Known: eager, trace"):
        parse_subject("port=a.py@graph")


def test_a_variant_is_called_by_its_framework_and_its_name():
    adapter, mode = parse_subject("torch-fused:trace")
    assert (adapter.name, adapter.reads(), adapter.label(mode)) == ("torch", "torch-fused", "torch-fused:trace")
    assert adapter is named("torch-fused")
    assert issubclass(adapter, load("torch"))
    assert [framework_of(name) for name in ("keras-torch", "keras-torch-x", "torch-", "torc-x")] == [
        "",
        "keras-torch",
        "",
        "",
    ]
    with pytest.raises(UsageError, match="unknown framework 'pytorch-fused'; did you mean 'torch-fused'"):
        parse_subject("pytorch-fused")


def test_a_file_below_a_folder_is_found_there(here):
    (here / "below").mkdir()
    (here / "below" / "a.py").write_text(TORCH)
    assert ports.beside("port=a.py@trace", here / "below") == f"port={here / 'below' / 'a.py'}:build@trace"
    assert ports.beside("port=b.py", here / "below") == "port=b.py"
    assert ports.beside("torch:eager", here / "below") == "torch:eager"


def test_a_graph_runs_on_onnx_runtime(here):
    onnx = pytest.importorskip("onnx")
    graph = onnx.helper.make_graph([], "empty", [], [])
    onnx.save(onnx.helper.make_model(graph), here / "a.onnx")
    adapter, mode = parse_subject("port=a.onnx")
    assert (adapter.name, adapter.variant, str(adapter.path), mode) == ("onnxruntime", "port", "a.onnx", "all")
    with pytest.raises(UsageError, match="is no code, and has no 'make'"):
        parse_subject("port=a.onnx:make")


def test_a_graph_that_is_missing_or_damaged_is_named(here):
    with pytest.raises(UsageError, match=r"port=a\.onnx.*a\.onnx"):
        parse_subject("port=a.onnx")
    (here / "a.onnx").write_bytes(b"\x08\x0a\x3a\xff\x01")
    with pytest.raises(UsageError, match="damaged or truncated"):
        parse_subject("port=a.onnx")
