"""Every field of a spec, and every line of names.toml, is checked with one line; code of a spec cannot end the program."""

import math
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from conftest import SPEC, write_folder

from xverify import ModelSpec, TensorSpec
from xverify.errors import SpecError, UsageError
from xverify.workload.spec import find_model, load_folder, load_module

X = {"x": TensorSpec(("N", 3))}
NESTED: list = []
NESTED.append(NESTED)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"shape": "N3"}, "write a tuple of sizes"),
        ({"shape": 3}, "write a tuple of sizes"),
        ({"shape": None}, "write a tuple of sizes"),
        ({"shape": ("N", True)}, "not True"),
        ({"shape": ("N", 2.0)}, "not 2.0"),
        ({"shape": ("N", 2**40)}, "positive integer"),
        ({"dtype": "float23"}, "did you mean 'float32'"),
        ({"dtype": np.float32}, "write its name as a text"),
        ({"low": "0", "high": 1}, "low is '0': it must be a finite number"),
        ({"low": math.nan, "high": 1}, "low is nan"),
        ({"low": 0, "high": math.inf}, "high is inf"),
        ({"low": True, "high": 2}, "low is True"),
        ({"low": -1, "high": 4, "dtype": "uint8"}, "uint8 holds the values 0 to 255"),
        ({"low": 0, "high": 300, "dtype": "uint8"}, "high is 300"),
        ({"low": 0.5, "high": 3, "dtype": "int64"}, "whole numbers"),
        ({"low": 0, "high": 1e6, "dtype": "float16"}, "larger than float16 can hold"),
        ({"low": -1.7e308, "high": 1.7e308, "dtype": "float64"}, "larger than float64 can hold"),
        ({"low": 0, "high": 10**5000, "dtype": "int64"}, "high is a int"),
        ({"layout": 3}, "layout is 3"),
        ({"layout": "NN"}, "one letter for two axes"),
    ],
)
def test_a_field_of_a_tensor_is_refused_in_one_line(arguments, says):
    with pytest.raises(SpecError, match=says) as caught:
        TensorSpec(**{"shape": ("N", 3), **arguments})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        *[({"batch": batch}, "batch is .*positive whole number") for batch in (0, -1, 2.5, True, "8", 2**40)],
        ({"inputs": [1]}, "write a mapping"),
        ({"inputs": {3: X["x"]}}, "inputs has the name 3"),
        ({"inputs": {"": X["x"]}}, "inputs has the name ''"),
        ({"inputs": {"a\x1b[2J": X["x"]}}, "texts that can be printed"),
        ({"inputs": {"x": TensorSpec(("N",), "complex64")}}, "draws floats and integers"),
        ({"inputs": {"x": TensorSpec(("N",), "bool")}}, "low and high"),
        ({"outputs": None}, "outputs is None"),
        ({"outputs": {}}, r"ModelSpec\(outputs=...\) is empty"),
        ({"options": ["depth"]}, "options is .*write a mapping"),
        ({"options": {"f": print}}, "is a builtin_function_or_method: options are"),
        ({"options": {1: 2}}, "the key 1"),
        ({"options": {"a": {"b": {3: 4}}}}, r"options\['a'\]\['b'\] has the key 3"),
        ({"options": {"a": math.nan}}, "finite"),
        ({"options": {"a": 10**30}}, "64 bits"),
        ({"options": {"a": np.float32(1)}}, "write a number of Python"),
        ({"options": {"a": NESTED}}, "nested too deeply"),
        ({"task": 3}, "task is 3: it must be a text"),
        ({"item": None}, "item is None"),
        ({"description": b"x"}, "description is"),
        ({"code": 1}, "code is 1"),
        ({"code": "a\0b"}, "the character 0"),
        ({"control_flow": True}, "control_flow is True"),
    ],
)
def test_a_field_of_a_model_is_refused_in_one_line(arguments, says):
    with pytest.raises(SpecError, match=says) as caught:
        ModelSpec(**{"inputs": X, "outputs": X, **arguments})
    assert "\n" not in str(caught.value)


def test_right_fields_are_taken():
    TensorSpec(["N", np.int64(3)], "uint8", low=0, high=256)
    TensorSpec(("N",), "int64", low=-(2**63), high=2**63)
    TensorSpec((), "float64", low=-1e300, high=1e300)
    ModelSpec(inputs=X, outputs=X, batch=np.int64(2), options={"a": [1, (2.5, None)], "b": {"c": "d"}})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b'[numpy]\n"fc1" = "\xff"', "names.toml is not UTF-8"),
        (b'"fc1" = "a"', "'fc1' stands in no table"),
        (b'[numpy]\n"fc1" = "a"\n"fc2" = "a"', "'fc1' and 'fc2' are both said to be 'a'"),
        (b'[numpy]\n"fc1" = ""', "takes lines of the form"),
        (b"[numpy]\na = " + b"[" * 5000, "names.toml"),
        (b"[numpy]\na = 1" + b"0" * 5000, "names.toml"),
    ],
)
def test_a_wrong_table_of_names_is_refused_in_one_line(tmp_path, content, says):
    folder = write_folder(tmp_path / "port")
    (folder / "names.toml").write_bytes(content)
    with pytest.raises(SpecError, match=says) as caught:
        load_folder(folder).names("numpy")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("import sys\nsys.exit(0)", r"spec\.py:2: it ends the program: SystemExit: 0"),
        ("import sys\nsys.exit('bye')", "SystemExit: bye"),
        ("raise KeyboardInterrupt", "it raises KeyboardInterrupt"),
        ("raise GeneratorExit", "it raises GeneratorExit"),
        ("class E(BaseException): pass\nraise E('own')", "it raises E: own"),
        ("import os\nos._exit(0)", "it ends the program: SystemExit: 0"),
        ("def f(): return f()\nf()", "RecursionError"),
        ("class E(Exception):\n  def __str__(self): return 1/0\nraise E", "spec.py:3: E"),
        ("raise ValueError('a\\nb\\x1b[31m')", "ValueError: a$"),
        ("x = " + "(" * 300 + ")" * 300, "spec.py"),
    ],
)
def test_a_spec_that_would_end_the_program_is_refused(tmp_path, source, says):
    folder = write_folder(tmp_path / "port", spec=source)
    with pytest.raises(SpecError, match=says) as caught:
        load_folder(folder)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", [b"x = '\xff'", b"\0", b"\xff\xfe"])
def test_a_spec_that_is_no_text_is_refused(tmp_path, content):
    folder = write_folder(tmp_path / "port")
    (folder / "spec.py").write_bytes(content)
    with pytest.raises(SpecError, match=r"spec\.py"):
        load_folder(folder)


def test_a_spec_that_does_not_end_is_refused(tmp_path, monkeypatch):
    from xverify import usercode

    source = "while True:\n    try:\n        [0 for _ in range(1000)]\n    except ValueError:\n        pass"
    folder = write_folder(tmp_path / "port", spec=source)
    monkeypatch.setattr(usercode, "LIMIT", 0.3)
    with pytest.raises(SpecError, match=r"TimeoutError: it has not ended after 0.3 s"):
        load_folder(folder)


def test_a_real_interrupt_stays_one(tmp_path):
    usual = signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    source = "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)"
    folder = write_folder(tmp_path / "port", spec=source)
    try:
        with pytest.raises(KeyboardInterrupt):
            load_folder(folder)
    finally:
        signal.signal(signal.SIGINT, usual)


def test_a_process_that_a_spec_forks_ends(tmp_path):
    source = (
        "import os\npid = os.fork()\nif not pid: os._exit(7)\ncode = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])\n"
    )
    folder = write_folder(tmp_path / "port", spec=source + SPEC + "assert code == 7")
    assert load_folder(folder).spec.batch == 4


def test_paths_that_cannot_be_folders(tmp_path):
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    for path in (tmp_path / "loop", tmp_path / ("x" * 300), "./a\0b"):
        with pytest.raises(UsageError):
            find_model(path)


# -- imports of the files of a folder ---------------------------------------------------------------------------------


def folder_of(path, **files):
    path.mkdir(parents=True)
    for name, text in files.items():
        place = path / f"{name.replace('__', '/')}.py"
        place.parent.mkdir(exist_ok=True)
        place.write_text(text)
    return path


def test_files_of_a_folder_import_each_other_as_scripts_do(tmp_path):
    for number in (1, 2):
        folder_of(
            tmp_path / str(number),
            helper=f"import deeper\nvalue = {number} + deeper.ten",
            deeper="ten = 10",
            parts__layers="from deeper import ten\nsize = ten * 2",
            numpy="import json, helper as h, numpy\nfrom helper import value\nimport helper, parts.layers\n"
            "from parts.layers import size\nimport parts.layers as again\n"
            "def late():\n    import deeper\n    return deeper.ten\n"
            "total = h.value + value + helper.value + parts.layers.size + size + again.size\nnumpy.zeros(1)\n",
            json="raise ValueError('hides the library')",
            torch="raise ValueError('hides torch')",
        )
    first, second = (load_module(tmp_path / str(number), "numpy") for number in (1, 2))
    assert (first.total, second.total) == (3 * 11 + 60, 3 * 12 + 60)
    assert first.late() == 10
    assert not {"helper", "deeper", "parts"} & set(sys.modules)
    assert not list(tmp_path.rglob("__pycache__"))


def test_a_model_file_is_not_the_framework_that_is_missing(tmp_path):
    folder = folder_of(tmp_path / "port", jittor="", tensorlayer="import tensorlayer_not_there")
    (folder / "numpy.py").write_text("import paddle_of_nobody")
    with pytest.raises(ModuleNotFoundError):
        load_module(folder, "numpy")
    code = (
        "import sys; from pathlib import Path; from xverify.workload.spec import load_module\n"
        "sys.modules['flax'] = None\n"
        "try: load_module(Path(sys.argv[1]), 'torch')\n"
        "except ModuleNotFoundError as error: print(error.name)\n"
    )
    folder_of(tmp_path / "other", torch="import flax", flax="")
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "other"], capture_output=True, text=True, check=True, env=os.environ
    )
    assert done.stdout == "flax\n"


def test_the_line_of_an_error_is_that_of_the_file(tmp_path):
    folder = folder_of(tmp_path / "port", helper="x = 1", numpy="import helper\n\n\nhelper.missing\n")
    with pytest.raises(AttributeError) as caught:
        load_module(folder, "numpy")
    assert caught.traceback[-1].lineno == 3
    assert caught.traceback[-1].path.name == "numpy.py"


def test_the_digest_of_a_folder_changes_with_its_weights(port):
    before = load_folder(port).digest()
    (port / "weights.safetensors").write_bytes(b"weights")
    assert load_folder(port).digest() != before
