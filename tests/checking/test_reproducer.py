"""``xverify check --reproducer`` with runtimes that compute one node wrong: the piece that it writes fails by itself."""

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
onnx = pytest.importorskip("onnx")

from helpers import narrowfiles, plantedfaults, runtimefaults  # noqa: E402
from helpers.htmlpages import Page  # noqa: E402
from helpers.runtimefaults import FAULTS  # noqa: E402
from onnx import TensorProto, helper, numpy_helper  # noqa: E402

from xverify.checking import pieces  # noqa: E402
from xverify.checking.reproducer_files import COMPARED, FILES  # noqa: E402

pytestmark = pytest.mark.usefixtures("in_one_process")
WRONG = Path(runtimefaults.__file__).parent / "wrongruntime"
PIECE = sorted(FILES)


@pytest.fixture
def plant(tmp_path, monkeypatch):
    """Put a runtime with this fault in the place of ONNX Runtime."""

    def planted(**fault):
        monkeypatch.setenv("PLANTED_FAULT", str(tmp_path / "fault.json"))
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(WRONG), os.environ.get("PYTHONPATH")])))
        (tmp_path / "fault.json").write_text(json.dumps(fault))

    return planted


@pytest.fixture
def checked(xverify, tmp_path):
    """Check files, and return how the command ended and the rows of its result."""

    def check(*arguments):
        done = xverify("check", *arguments, "--reproducer", tmp_path / "piece", "--json", tmp_path / "r.json")
        file = tmp_path / "r.json"
        return done, json.loads(file.read_text())["rows"] if file.exists() else []

    return check


def ran(folder, right=False):
    """Run the script of a reproducer as a maintainer would. right: with the real runtime."""
    variables = {name: value for name, value in os.environ.items() if not right or name != "PYTHONPATH"}
    command = [sys.executable, str(folder / "reproduce.py")]
    return subprocess.run(command, cwd="/", env=variables, capture_output=True, text=True, check=False)


def operators(folder, name="model.onnx"):
    return [node.op_type for node in onnx.load(folder / name).graph.node]


def assert_fails_alone(folder, *kinds):
    """The piece has these operators; it is wrong on the wrong runtime, and right on the right one."""
    assert sorted(each.name for each in folder.iterdir()) == PIECE
    assert operators(folder) == list(kinds)
    wrong, right = ran(folder), ran(folder, right=True)
    assert (wrong.returncode, right.returncode) == (1, 0), (wrong, right)
    assert "WRONG" in wrong.stdout
    assert "error" in wrong.stdout
    assert "limit" in wrong.stdout
    assert "right, 0 of " in right.stdout


def as_fault(name):
    """A fault of FAULTS as a wrong runtime has it."""
    node, attributes, weights = FAULTS[name]
    (found,) = [each for each in runtimefaults.network().graph.node if each.name == node]
    places = {str(list(found.input).index(weight)): ("float32", array.tolist()) for weight, array in weights.items()}
    return found.op_type, {"node": node, "attributes": attributes, "inputs": places}


FIRST = "an epsilon of 1e-3"


@pytest.mark.parametrize("fault", [pytest.param(each, marks=[pytest.mark.slow] * (each != FIRST)) for each in FAULTS])
def test_every_planted_fault_of_a_node_fails_alone(checked, plant, tmp_path, fault):
    kind, described = as_fault(fault)
    plant(**described)
    onnx.save(runtimefaults.network(), tmp_path / "network.onnx")
    done, (row,) = checked(tmp_path / "network.onnx")
    assert done.code == 1, done.out + done.err
    assert row["reproducer"] == str(tmp_path / "piece")
    assert f"network.onnx, runtime: {kind} '{described['node']}' fails by itself" in " ".join(done.out.split())
    assert_fails_alone(tmp_path / "piece", kind)
    report = (tmp_path / "piece" / "report.md").read_text()
    assert f"wrong values of {kind} on the CPU" in report.splitlines()[0]
    assert f"pip install onnxruntime=={row['environment']['onnxruntime']} numpy" in report


QUANTISED = {
    "dynamic": ("ConvInteger", "Add", "int32", 2),
    "QDQ": ("Conv", "Mul", "float32", 0.5),
    "QOperator": ("QLinearConv", None, None, None),
}


@pytest.mark.slow
@pytest.mark.parametrize("how", QUANTISED)
def test_a_wrong_kernel_of_a_quantised_node_fails_alone(checked, plant, tmp_path, how):
    model = narrowfiles.quantised(tmp_path, how)
    kind, op, dtype, change = QUANTISED[how]
    node = next(each for each in model.graph.node if each.op_type == kind and "conv3" in each.name)
    if op is None:
        zero = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == node.input[7]))
        plant(node=node.name, inputs={"7": (str(zero.dtype), int(zero) + 2)})
    else:
        values = np.full((16, 1, 1), 1 if op == "Mul" else 0).astype(float)
        values[1] = change
        plant(node=node.name, result=(op, dtype, values.tolist()))
    onnx.save(model, tmp_path / "quantised.onnx")
    done, _ = checked(tmp_path / "quantised.onnx", "--nodes")
    assert done.code == 1, done.out + done.err
    made = operators(tmp_path / "piece")
    assert made[-1] == kind
    assert_fails_alone(tmp_path / "piece", *made)
    assert set(made[:-1]) <= {"DequantizeLinear"}  # of its constants


@pytest.mark.slow
def test_a_wrong_bias_of_a_quantised_convolution_fails_alone(checked, plant, tmp_path):
    model = runtimefaults.quantised_network()
    bias = numpy_helper.to_array(next(each for each in model.graph.initializer if each.name == "b")).copy()
    bias[-1] += 2
    plant(node="conv", inputs={"8": ("int32", bias.tolist())})
    onnx.save(model, tmp_path / "quantised.onnx")
    done, _ = checked(tmp_path / "quantised.onnx")
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "QLinearConv")


def test_a_fault_that_only_joined_nodes_have_is_reproduced_by_these_nodes(checked, plant, tmp_path):
    plant(node="/relu2/Relu", after="/block/block.0/Add", result=("Mul", "float32", 1.5))
    narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx")
    done, (row,) = checked(tmp_path / "network.onnx")
    assert done.code == 1, done.out + done.err
    assert {each["verdict"] for each in row["error"]["layers"]["layers"]} == {"EQUAL"}
    says = "2 nodes up to Relu '/relu2/Relu' fail together with all graph optimisations"
    assert says in " ".join(done.out.split())
    assert_fails_alone(tmp_path / "piece", "Add", "Relu")
    assert (
        "They fail together: without any one of them, the others are right."
        in (tmp_path / "piece" / "report.md").read_text()
    )


@pytest.mark.slow
def test_a_runtime_that_shows_no_values_of_nodes_has_its_faulty_node_found_by_halves(checked, plant, tmp_path):
    pytest.importorskip("openvino")
    plant(node="/conv3/Conv", result=("Mul", "float32", 1.01))
    done, _ = checked(narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx"), "--on", "openvino")
    assert done.code == 1, done.out + done.err
    assert "Conv '/conv3/Conv' fails by itself in float32" in " ".join(done.out.split())
    assert_fails_alone(tmp_path / "piece", "Conv")


def test_a_right_runtime_writes_nothing_and_says_so(checked, tmp_path):
    narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx")
    done, (row,) = checked(tmp_path / "network.onnx")
    assert done.code == 0, done.out + done.err
    assert "no reproducer was written, because no row is DIFFERENT" in done.out
    assert not (tmp_path / "piece").exists()
    assert row["reproducer"] == ""


RELU = {"node": "/relu1/Relu", "result": ("Mul", "float32", 1.5)}


def test_several_files_have_a_folder_each_and_an_earlier_reproducer_is_replaced_with_force(checked, plant, tmp_path):
    plant(**RELU)
    files = [narrowfiles.save(narrowfiles.network(seed=seed), tmp_path / f"net {seed}.onnx") for seed in (0, 1)]
    done, rows = checked(*files)
    assert done.code == 1, done.out + done.err
    folders = [tmp_path / "piece" / f"net-{seed}.onnx" for seed in (0, 1)]
    assert [row["reproducer"] for row in rows] == list(map(str, folders))
    for folder in folders:
        assert_fails_alone(folder, "Relu")
    before = (folders[0] / "model.onnx").stat().st_ino
    done, rows = checked(files[0])
    assert (done.code, rows) != (1, [])
    assert done.code == 2
    assert f"--reproducer {tmp_path / 'piece'} holds an earlier reproducer: --force replaces it" in done.err
    assert (folders[0] / "model.onnx").stat().st_ino == before
    done, _ = checked(files[0], "--force")
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Relu")
    assert not [each for each in tmp_path.iterdir() if each.name.startswith(".xverify")]


@pytest.mark.parametrize("force", [(), ("--force",)], ids=["", "force"])
@pytest.mark.parametrize("what", ["file", "folder", "link"])
def test_what_is_no_reproducer_is_never_replaced(checked, tmp_path, what, force):
    file, place = narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx"), tmp_path / "piece"
    if what == "file":
        place.write_text("mine")
    elif what == "folder":
        place.mkdir()
        (place / "model.onnx").write_text("mine")
    else:
        place.symlink_to(tmp_path / "nowhere")
    done, _ = checked(file, *force)
    says = {"file": "is a file", "folder": "and is no reproducer", "link": "is a link that leads nowhere"}[what]
    assert done.code == 2
    assert says in done.err
    assert f"--reproducer {place}" in done.err
    assert "name a new folder" in done.err


def test_the_folder_is_not_that_of_the_file(checked, tmp_path):
    place = tmp_path / "piece"
    place.mkdir()
    done, _ = checked(narrowfiles.save(narrowfiles.network(), place / "network.onnx"))
    assert done.code == 2
    assert f"--reproducer {place} holds what this command reads as FILE" in done.err
    assert [each.name for each in place.iterdir()] == ["network.onnx"]


def small(path, nodes, inputs, outputs, constants=(), opset=17):
    """Write a graph of these nodes. inputs, outputs: name -> (type, shape)."""
    values = [
        [helper.make_tensor_value_info(name, *each) for name, each in sides.items()] for sides in (inputs, outputs)
    ]
    written = [numpy_helper.from_array(array, name) for name, array in dict(constants).items()]
    graph = helper.make_graph(nodes, "small", *values, written)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9), path)
    return path


FLOATS = (TensorProto.FLOAT, [2, 6])


def test_a_node_within_a_branch_fails_alone(checked, plant, tmp_path):
    """The branch is in the place of the If, as for the verdict on its nodes."""
    taken = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["r"], "/inner/Relu")],
        "then",
        [],
        [helper.make_tensor_value_info("r", *FLOATS)],
    )
    other = helper.make_graph(
        [helper.make_node("Neg", ["x"], ["n"])], "else", [], [helper.make_tensor_value_info("n", *FLOATS)]
    )
    nodes = [
        helper.make_node("If", ["yes"], ["h"], "/If", then_branch=taken, else_branch=other),
        helper.make_node("Exp", ["h"], ["y"], "/Exp"),
    ]
    file = small(tmp_path / "branch.onnx", nodes, {"x": FLOATS}, {"y": FLOATS}, {"yes": np.array(True)})
    plant(node="/Exp", result=("Mul", "float32", 1.5))
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Exp")


def test_a_loop_is_a_piece_with_its_body(checked, plant, tmp_path):
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [helper.make_node("Identity", ["go"], ["on"]), helper.make_node("Mul", ["state", "factor"], ["next"])], "body",
        [value("trip", TensorProto.INT64, []), value("go", TensorProto.BOOL, []), value("state", *FLOATS)],
        [value("on", TensorProto.BOOL, []), value("next", *FLOATS)],
    )  # fmt: skip
    nodes = [
        helper.make_node("Abs", ["x"], ["factor"], "/Abs"),
        helper.make_node("Loop", ["three", "", "x"], ["y"], "/Loop", body=body),
    ]
    file = small(tmp_path / "loop.onnx", nodes, {"x": FLOATS}, {"y": FLOATS}, {"three": np.array(3)})
    plant(node="/Loop", result=("Mul", "float32", 1.5))
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Loop")
    assert sorted(np.load(tmp_path / "piece" / "inputs.npz")) == ["factor", "x"]


def test_only_the_constants_of_the_piece_are_in_it_and_external_ones_too(checked, plant, tmp_path):
    weights = {name: np.random.default_rng(0).standard_normal((6, 6)).astype(np.float32) for name in ("a", "b")}
    nodes = [
        helper.make_node("MatMul", ["x", "a"], ["h"], "/first/MatMul"),
        helper.make_node("MatMul", ["h", "b"], ["y"], "/second/MatMul"),
    ]
    file = small(tmp_path / "external.onnx", nodes, {"x": FLOATS}, {"y": FLOATS}, weights)
    onnx.save(onnx.load(file), file, save_as_external_data=True, size_threshold=0, location="weights.bin")
    plant(node="/second/MatMul", result=("Mul", "float32", 1.5))
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "MatMul")
    model = onnx.load(tmp_path / "piece" / "model.onnx")
    assert [each.name for each in model.graph.initializer] == ["b"]
    assert not model.graph.initializer[0].external_data


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.BFLOAT16], ids=["float16", "bfloat16"])
def test_values_of_narrow_types_go_through_a_piece(checked, plant, tmp_path, kind):
    """numpy lacks bfloat16: a Cast stands at each end of the piece."""
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], "/in/Cast", to=kind),
        helper.make_node("Transpose", ["h"], ["t"], "/Transpose", perm=[1, 0]),
        helper.make_node("Cast", ["t"], ["y"], "/out/Cast", to=TensorProto.FLOAT),
    ]
    square = TensorProto.FLOAT, [6, 6]
    file = small(tmp_path / "narrow.onnx", nodes, {"x": square}, {"y": square}, opset=18)
    plant(node="/Transpose", attributes={"perm": [0, 1]})
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    narrow = kind == TensorProto.BFLOAT16
    assert_fails_alone(tmp_path / "piece", *["Cast"] * narrow, "Transpose", *["Cast"] * narrow)


def test_names_from_a_file_are_no_code_and_no_markup(checked, plant, tmp_path):
    name = '"""\nraise SystemExit(0)\n`|<b>'
    nodes = [helper.make_node("Exp", ["x"], ["h/../y"], name), helper.make_node("Abs", ["h/../y"], ["y"], "/Abs")]
    file = small(tmp_path / "names.onnx", nodes, {"x": FLOATS}, {"y": FLOATS})
    plant(node=name, result=("Mul", "float32", 1.5))
    done, _ = checked(file)
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Exp")
    assert "SystemExit" not in (tmp_path / "piece" / "reproduce.py").read_text()
    assert "<b>" not in (tmp_path / "piece" / "report.md").read_text()


def test_a_result_that_is_no_number_or_beyond_the_type_is_compared(checked, plant, tmp_path):
    nodes = [helper.make_node("Log", ["x"], ["h"], "/Log"), helper.make_node("Sigmoid", ["h"], ["y"], "/Sigmoid")]
    file = small(tmp_path / "log.onnx", nodes, {"x": FLOATS}, {"y": FLOATS})
    plant(node="/Log", result=("Mul", "float32", 1.5))
    np.savez(tmp_path / "in.npz", x=np.array([[-1, 0, 1, 2, 3, np.inf]] * 2, np.float32))
    done, _ = checked(file, "--inputs", tmp_path / "in.npz")
    assert done.code == 1, done.out + done.err
    assert_fails_alone(tmp_path / "piece", "Log")


# Wrong conversion -> operators of the node of the file, and of those of the reference in its place.
PAIRS = {
    "relu6": (["Clip"], ["Relu"]),
    "resize-nearest": (["Resize"], ["Resize"]),
    "stale-weight": (["Conv"], ["Conv"]),
    "norm-folded-other-eps": (["Conv"], ["Conv", "BatchNormalization"]),
}


@pytest.mark.slow
def test_the_first_node_of_a_wrong_conversion_stands_beside_that_of_the_reference(checked, tmp_path):
    right = plantedfaults.write(tmp_path / "right.onnx")
    files = [plantedfaults.write(tmp_path / f"{name}.onnx", **plantedfaults.WRONG[name][0]) for name in PAIRS]
    done, rows = checked(*files, "--against", right)
    assert done.code == 1, done.out + done.err
    assert [row["reproducer"] for row in rows if row["task"] == "runtime"] == [""] * len(PAIRS)
    for name, (own, reference) in PAIRS.items():
        folder = tmp_path / "piece" / f"{name}.onnx"
        assert sorted(each.name for each in folder.iterdir()) == sorted(COMPARED)
        assert (operators(folder), operators(folder, "reference.onnx")) == (own, reference)
        done = ran(folder)
        assert done.returncode == 1, done.stdout + done.stderr
        first, second = done.stdout.splitlines()
        assert first.startswith("reference.onnx: ")
        assert "right, 0 of " in first
        assert second.startswith("model.onnx: ")
        assert "WRONG" in second
        assert f"of {name}.onnx computes something else than " in (folder / "report.md").read_text()


@pytest.mark.parametrize("against", ["quantised", "recorded", "swapped"])
def test_a_wrong_conversion_without_a_reproducer_says_why(checked, tmp_path, against):
    right = plantedfaults.write(tmp_path / "right.onnx")
    if against == "recorded":
        np.savez(tmp_path / "recorded.npz", **{"input/x": np.ones((2, 6), "f"), "output/y": np.ones((2, 6), "f")})
        nodes = [helper.make_node("Exp", ["x"], ["y"], "/Exp")]
        right, wrong = tmp_path / "recorded.npz", small(tmp_path / "w.onnx", nodes, {"x": FLOATS}, {"y": FLOATS})
    else:
        name = {"quantised": "activation-scale", "swapped": "outputs-swapped"}[against]
        wrong = plantedfaults.write(tmp_path / "w.onnx", **plantedfaults.WRONG[name][0])
    says = {
        "quantised": "a quantised file computes other values than its reference everywhere",
        "swapped": "no single node of the reference stands in the place of the first one that differs",
        "recorded": "its reference is no ONNX file",
    }
    done, rows = checked(wrong, "--against", right)
    assert done.code == 1, done.out + done.err
    assert f"w.onnx, conversion: no reproducer was written: {says[against]}" in " ".join(done.out.split())
    assert not (tmp_path / "piece").exists()
    assert [row["reproducer"] for row in rows] == ["", ""]


def test_the_next_commands_and_other_reports_name_it(xverify, plant, tmp_path):
    plant(**RELU)
    file = narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx")
    reports = ("--html", tmp_path / "r.html", "--markdown", tmp_path / "r.md", "--junit", tmp_path / "r.xml")
    done = xverify("check", file, "--reproducer", tmp_path / "piece", *reports)
    assert done.code == 1, done.out + done.err
    texts = [(tmp_path / name).read_text().replace("\\", "") for name in ("r.html", "r.md", "r.xml")]
    for text in (Page(texts[0]).text, *texts[1:]):
        assert str(tmp_path / "piece") in text


@pytest.mark.slow
def test_a_file_that_is_wrong_at_several_sizes_has_a_folder_for_each(checked, plant, tmp_path):
    plant(**RELU)
    file = narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx")
    done, rows = checked(file, "--sizes", "batch=1,2")
    assert done.code == 1, done.out + done.err
    folders = [tmp_path / "piece" / f"network.onnx-batch-{size}" for size in (1, 2)]
    assert [row["reproducer"] for row in rows] == list(map(str, folders))
    for size, folder in zip((1, 2), folders):
        assert_fails_alone(folder, "Relu")
        assert np.load(folder / "inputs.npz")["c1"].shape[0] == size


def test_a_search_that_has_no_time_says_so(checked, plant, tmp_path, monkeypatch):
    monkeypatch.setattr(pieces, "SECONDS", 0.0)
    plant(**RELU)
    done, (row,) = checked(narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx"))
    assert done.code == 1, done.out + done.err
    assert "no reproducer was written: the search for a piece that fails by itself ended for want of time" in done.out
    assert row["reproducer"] == ""
    assert not (tmp_path / "piece").exists()


def test_a_piece_that_is_found_before_the_time_is_over_is_written_and_says_so(checked, plant, tmp_path, monkeypatch):
    counted = iter(range(1000))  # the clock of the search
    monkeypatch.setattr(pieces, "time", SimpleNamespace(monotonic=lambda: next(counted)))
    monkeypatch.setattr(pieces, "SECONDS", 6.0)
    plant(node="/relu2/Relu", after="/block/block.0/Add", result=("Mul", "float32", 1.5))
    done, _ = checked(narrowfiles.save(narrowfiles.network(), tmp_path / "network.onnx"))
    assert done.code == 1, done.out + done.err
    assert ran(tmp_path / "piece").returncode == 1
    assert pieces.STOPPED in (tmp_path / "piece" / "report.md").read_text()
