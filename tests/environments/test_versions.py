"""``xverify check --on RUNTIME==VERSION``: environments of versions of a runtime, one of which has a wrong kernel."""

import json
import os
import sys
import zipfile

import numpy as np
import pytest
from helpers.envadapters import fake_uv, visible

from xverify.checking.candidate import Checked, Evaluated
from xverify.checking.computing import Cases, Computed
from xverify.checking.firsts import first_versions
from xverify.checking.judge import Judged
from xverify.checking.subject import File, Opened
from xverify.environments import versions
from xverify.errors import UsageError
from xverify.formats.onnx import Adapter
from xverify.framework.modelfile import Signature
from xverify.results.records import Error
from xverify.results.verdicts import Verdict

onnx = pytest.importorskip("onnx")
from onnx import TensorProto, helper, numpy_helper  # noqa: E402  it is there

# A runtime of ONNX files with two operators, in a package of its own.
FORMAT = """
from pathlib import Path
import numpy as np
from xverify.formats._onnx_file import OnnxFile
from xverify.framework.modelfile import Signature, Tensor
from xverify.framework.runner import OnArrays, refuse_float64

def eager(framework, model, example):
    return lambda x: {"y": model.values(x)["y"]}

class Adapter(OnnxFile, OnArrays):
    name = "toy"
    runtime = "toyrt"
    on_request = True
    needs = {"toy-runtime": "toy_runtime"}
    modes = {"eager": eager}
    implicit_mode = "eager"

    def __init__(self, threads, device):
        import toy_runtime
        self.toy = toy_runtime

    def open(self, path, options, float64):
        refuse_float64(float64)
        return self.toy.Model(path)

    def signature(self, model):
        return Signature((Tensor("x", ("batch", 4), "float32"),), (Tensor("y", ("batch", 4), "float32"),))

    def node_values(self, model, inputs, folder, graph=None):
        values = model.values(*inputs.values())
        for name, value in values.items():
            np.save(Path(folder) / f"{name}.npy", value)
        return {name: f"{name}.npy" for name in values}

    def environment(self):
        return {"toyrt": self.toy.__version__}
"""
RUNTIME = """
import numpy as np
import onnx
from onnx import numpy_helper

__version__ = "VERSION"

class Model:
    def __init__(self, path):
        graph = onnx.load(path).graph
        self.nodes = graph.node
        self.arrays = {each.name: numpy_helper.to_array(each) for each in graph.initializer}

    def values(self, x):
        known = {**self.arrays, "x": x}
        for node in self.nodes:
            one, *other = (known[name] for name in node.input)
            known[node.output[0]] = one @ other[0] if node.op_type == "MatMul" else np.maximum(one, FLOOR)
        return {node.output[0]: known[node.output[0]] for node in self.nodes}
"""
RIGHT, WRONG = "np.float32(0)", "np.float32(-0.25)"
KERNELS = {"1.0": RIGHT, "1.2": RIGHT, "1.10": WRONG, "1.11": WRONG}  # version -> the kernel of Relu


def code(version):
    return RUNTIME.replace("VERSION", version).replace("FLOOR", KERNELS[version])


@pytest.fixture
def file(tmp_path, monkeypatch):
    """An ONNX file, with the runtime's format and an empty folder of environments."""
    (tmp_path / "formats").mkdir()
    (tmp_path / "formats" / "toy.py").write_text(FORMAT)
    monkeypatch.setenv("XVERIFY_FORMATS", str(tmp_path / "formats"))
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(tmp_path / "environments"))
    matrix = np.random.default_rng(0).standard_normal((4, 4)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "matrix"], ["h"], "/fc/MatMul"),
        helper.make_node("Relu", ["h"], ["y"], "/act/Relu"),
    ]
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4]) for name in ("x", "y"))
    graph = helper.make_graph(nodes, "model", [x], [y], [numpy_helper.from_array(matrix, "matrix")])
    path = tmp_path / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9), path)
    return path


def make(root, version):
    """Make an environment of a version of the runtime, as if xverify had made it, which sees the packages of this interpreter."""
    folder = root / f"toy-runtime=={version}"
    site = folder / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    (folder / "bin" / "python").symlink_to(os.path.realpath(sys.executable))
    (folder / "pyvenv.cfg").write_text(f"home = {os.path.dirname(os.path.realpath(sys.executable))}\n")
    (site / "toy_runtime.py").write_text(code(version))
    (site / "this.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")) + "\n")
    stamp = {"name": folder.name, "python": sys.version.split()[0], "pins": "", "packages": {"toy-runtime": version}}
    (folder / "xverify.json").write_text(json.dumps(stamp))


def rows(tmp_path):
    return {row["subject"]: row for row in json.loads((tmp_path / "r.json").read_text())["rows"]}


def test_the_first_version_that_differs_is_told_with_its_node(xverify, file, tmp_path):
    for version in ("1.2", "1.10"):
        make(tmp_path / "environments", version)
    on = "toyrt==1.10, toyrt==1.2"
    done = xverify("check", file, "--on", on, "--json", tmp_path / "r.json")
    assert done.code == 1, done.out + done.err
    found = {subject.rpartition(":")[2]: row for subject, row in rows(tmp_path).items()}
    assert {version: row["error"]["verdict"] for version, row in found.items()} == {
        "toyrt==1.10": "DIFFERENT", "toyrt==1.2": "EQUAL"
    }  # fmt: skip
    assert found["toyrt==1.2"]["environment"]["toyrt"] == "1.2"
    says = "toyrt==1.10 is the first version that differs from those before it: it is DIFFERENT, and 1.2 is EQUAL: /act/Relu"
    assert says in done.out
    assert done.err.count("installing") == 0


def test_one_version_stands_in_the_name_of_the_row(xverify, file, tmp_path):
    make(tmp_path / "environments", "1.2")
    done = xverify("check", file, "--on", "toyrt==1.2.0", "--sizes", "batch=1,3", "--json", tmp_path / "r.json")
    assert done.code == 0, done.out + done.err
    assert list(rows(tmp_path)) == ["model.onnx:toyrt==1.2.0 batch=1", "model.onnx:toyrt==1.2.0 batch=3"]


def test_versions_that_nobody_can_judge_are_compared_with_each_other(xverify, file, tmp_path):
    """A file of an operator that has no implementation in float64, or of a format without one."""
    for version in ("1.2", "1.10"):
        make(tmp_path / "environments", version)
    other = tmp_path / "formats" / "toy.py"
    other.write_text(FORMAT.replace('name = "toy"', 'name = "toy"\n    title = "toy file"'))
    done = xverify("check", file, "--on", "toyrt==1.2,toyrt==1.10")
    assert done.code == 4, done.out + done.err
    assert "toyrt==1.10 is the first version that differs from those before it: its output y is away by" in done.out
    assert "it is not known which is right" in done.out


@pytest.mark.parametrize(("change", "says"), [(0.01, "both are EQUAL"), (1e-6, None)], ids=["steps", "rounding"])
def test_outputs_of_two_versions_that_are_both_right_are_compared_too(tmp_path, change, says):
    """As those of a quantised file, in which a value beside the middle of two steps may become either of them."""
    outputs = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    checked = []
    for version, array in (("1.10", outputs * np.float32(1 + change)), ("1.9", outputs)):
        file = File("a", tmp_path / "a.onnx", Adapter, None, version=version)
        opened = Opened(**vars(file), signature=Signature((), ()), environment={})
        computed = Computed(tmp_path, {"0/y": array}, {}, {})
        evaluated = Evaluated(opened, Cases({}, 1, ("random",), ()), computed)
        checked.append(Checked(opened, {}, evaluated, answers={"runtime": Judged(Error(Verdict.EQUAL), {})}))
    told = list(first_versions(checked))
    assert len(told) == (says is not None)
    for each in told:
        assert each.startswith(
            "a.onnx: onnxruntime==1.10 is the first version that differs from those before it: its output y"
        )
        assert each.endswith(f"is away by 0.008 of its size (case 0) from that of 1.9; {says}")


def test_a_version_that_cannot_be_installed_is_refused_in_one_line(xverify, file, tmp_path, monkeypatch):
    pip = "Could not find a version that satisfies the requirement toy-runtime==1.9"
    listed = "1.10, 1.11, 1.0, 1.1, 1.2"
    # It makes an empty environment, and cannot install what it is asked for.
    says = f"echo 'ERROR: {pip} (from versions: {listed})'; echo 'ERROR: No matching'"
    fake_uv(tmp_path, monkeypatch, f"[ $1 = venv ] && mkdir -p $5 && exit\ncat $6\n{says}; exit 1")
    done = xverify("check", file, "--on", "toyrt==1.9", "--json", tmp_path / "r.json")
    assert done.code == 2, done.out + done.err
    line = f"--on toy-runtime==1.9: it cannot be installed: {pip}; versions that there are: 1.1, 1.2, 1.10, 1.11"
    assert done.err.strip().splitlines()[-1].endswith(line)
    assert "installing toy-runtime==1.9, numpy with uv" in done.err
    assert visible(tmp_path / "environments") == []
    assert not (tmp_path / "r.json").exists()


@pytest.mark.parametrize(
    ("on", "says"),
    [
        ("toyrt==", "--on toyrt==: write NAME==VERSION"),
        ("toyrt==new", "--on toyrt==new: write NAME==VERSION"),
        ("toyrt>=1.2", "toyrt>=1.2 runs no ONNX file here; --on takes"),
        ("litert==1.0", "litert runs no ONNX file here; --on takes"),
    ],
)
def test_a_text_that_is_no_version_of_a_runtime_is_refused(xverify, file, on, says):
    done = xverify("check", file, "--on", on)
    assert done.code == 2
    assert says in done.err


def wheel(folder, name, version, files):
    info = f"{name}-{version}.dist-info"
    files = {
        **files,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{each},,\n" for each in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for each, text in files.items():
            archive.writestr(each, text)


@pytest.mark.slow
def test_environments_are_made_once_and_listed_beside_the_others(xverify, file, tmp_path, monkeypatch):
    wheels = tmp_path / "wheels"
    wheels.mkdir()
    for version in ("1.0", "1.11"):
        wheel(wheels, "toy_runtime", version, {"toy_runtime.py": code(version)})
    wheel(wheels, "numpy", "1.0", {})  # the environments see that of this interpreter
    for name, value in {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(wheels),
        "UV_NO_INDEX": "1",
        "UV_FIND_LINKS": str(wheels),
    }.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path.endswith("-packages")))
    command = ("check", file, "--on", "toyrt==1.0,toyrt==1.11", "--json", tmp_path / "r.json")
    done = xverify(*command)
    assert done.code == 1, done.out + done.err
    assert done.err.count(": installing toy-runtime==") == 2
    assert "toyrt==1.11 is the first version that differs from those before it: it is DIFFERENT" in done.out
    again = xverify(*command)
    assert again.code == 1
    assert "installing" not in again.err
    listed = json.loads(xverify("env", "list", "--json").out)["environments"]
    assert [each["name"] for each in listed] == ["toy-runtime==1.0", "toy-runtime==1.11"]
    assert xverify("env", "remove", "toy-runtime==1.0").code == 0
    missing = xverify("check", file, "--on", "toyrt==7")
    assert missing.code == 2
    assert "--on toy-runtime==7: it cannot be installed: " in missing.err


def test_versions_are_ordered_as_their_numbers_are():
    ordered = ["1.2rc1", "1.2", "1.2.post1", "1.2.1", "1.10", "2024.4.0", "2024.10"]
    assert versions.in_order(reversed(ordered)) == ordered


def test_a_version_is_named_after_two_equals_signs():
    assert versions.parse(" onnxruntime == 1.20.1 ") == ("onnxruntime", "1.20.1")
    assert versions.parse("openvino") == ("openvino", "")
    with pytest.raises(UsageError, match="write NAME==VERSION"):
        versions.parse("==1.0")
