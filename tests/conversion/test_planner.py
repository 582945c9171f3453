"""``xverify convert --keep``: layers that stay in float32, by their names or the fewest that the conditions need."""

import itertools
import json
import random

import pytest

import xverify as package
from xverify.commands._main import main
from xverify.conversion.search import Search, Tried
from xverify.results.file import read

SPEC = """
from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 4))}, batch=16)
"""

# In whole numbers, `outlier` loses its weights beside one that is 1000 times larger; `huge` overflows in float16.
TORCH = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.outlier, self.huge = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 16)
        self.more, self.last = nn.Linear(16, 16), nn.Linear(16, 4)
        with torch.no_grad():
            self.first.weight[0], self.first.bias[0] = 0.0, -1.0  # the activation behind it is 0
            self.outlier.weight[:, 0] = 1000 * self.outlier.weight.abs().max()

    def forward(self, x):
        h = self.outlier(self.first(x).relu()).relu()
        h = (self.huge(h) * 500 * 500).reshape(-1, 4, 4).transpose(1, 2).reshape(-1, 16)
        h = (h / 500 / 500).relu()
        return self.last(self.more(h).relu())


def build():
    return Net()
"""

BAD = {"int8": "/outlier/Gemm", "float16": "/huge/Gemm"}
GATES = {"int8": "sqnr>=35", "float16": "sqnr>=50"}


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "net"
    path.mkdir()
    for name, text in (("spec", SPEC), ("torch", TORCH)):
        (path / f"{name}.py").write_text(text)
    return path


def plan_of(file):
    return json.loads(file.read_text())["plan"]


def kept(plan):
    return {layer["layer"] for layer in plan["layers"] if layer["kept"]}


# -- the search ---------------------------------------------------------------------------------------------------------


def additive(costs, limit, tried, late=lambda: False):
    """A search among layers whose errors add up as powers. tried: gets what was tried."""

    def make(kept):
        tried.append(kept)
        error = sum(cost**2 for index, cost in enumerate(costs) if index not in kept) ** 0.5
        return Tried(0, {}, () if error <= limit else ("too much",), error)

    return Search(len(costs), make, late, lambda what: None)


@pytest.mark.parametrize("seed", range(20))
def test_the_search_keeps_as_few_layers_as_the_best_of_all_choices(seed):
    chance = random.Random(seed)
    costs = [10 ** chance.uniform(-3, 0) for _ in range(6)]
    limit, tried = 10 ** chance.uniform(-3, 0.3), []
    chosen = additive(costs, limit, tried).execute()
    assert len(tried) == len(set(tried)), "no file is made twice"
    search = additive(costs, limit, [])
    holding = [
        len(each)
        for size in range(len(costs) + 1)
        for each in itertools.combinations(range(len(costs)), size)
        if not search.make(frozenset(each)).unmet
    ]
    assert len(chosen) == min(holding)


def test_a_layer_that_is_needless_beside_others_is_left_out():
    """Layer 0 costs most alone, and does no harm as long as layer 1 is in float32."""

    def make(kept):
        error = 1.0 if 1 not in kept else 0.0
        alone = {frozenset({1, 2}): 2.0}.get(kept, error)
        return Tried(0, {}, () if error == 0.0 else ("too much",), alone)

    search = Search(3, make, lambda: False, lambda what: None)
    assert search.execute() == {1}
    assert search.order()[0] == 0


def test_a_search_without_time_keeps_all_layers_and_one_that_is_cut_the_fewest_so_far():
    assert additive([1, 1, 1], 0.1, [], lambda: True).execute() == {0, 1, 2}
    tried = []
    search = additive([0.5, 1, 0.01, 2], 0.6, tried, lambda: len(tried) >= 6)  # layers 1 and 3 would do
    assert (search.execute(), search.late) == ({0, 1, 3}, True)


# -- bad requests: nothing starts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["m.onnx", "--keep", "auto"], "--keep auto: it names layers that stay in float32; add --quantize int8"),
        (
            ["m.onnx", "--keep", "auto", "--quantize", "int8"],
            "--keep auto needs the conditions that the file is to meet",
        ),
        (["m.onnx", "--keep", "fc1,,fc2", "--quantize", "int8"], "--keep 'fc1,,fc2': write names of layers"),
        (["m.tflite", "--keep", "fc1", "--quantize", "int8"], "no layer of a TensorFlow Lite file can stay in float32"),
        (["m.xml", "--keep", "auto", "--quantize", "float16"], "can stay in float32 by itself; write --to onnx"),
        (["m.pt2", "--keep", "fc1", "--quantize", "float16"], "can stay in float32 by itself; write --to onnx"),
    ],
)
def test_layers_that_cannot_be_kept_are_one_line(arguments, says, folder, out, capsys, monkeypatch):
    monkeypatch.chdir(out)
    code = main(["convert", "--quiet", str(folder), *arguments])
    error = capsys.readouterr().err
    assert code == 2, error
    assert says in error
    assert list(out.iterdir()) == []


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_an_unknown_layer_is_told_with_the_nearest_name_and_nothing_is_left(precision, folder, out, xverify):
    done = xverify("convert", folder, out / "m.onnx", "--quantize", precision, "--keep", "outliers")
    assert done.code == 2, done.out + done.err
    assert "--keep outliers: the file has no layer of this name; did you mean 'outlier'?" in done.err
    assert "Layers: /first/Gemm, /outlier/Gemm, /huge/Gemm, /more/Gemm, /last/Gemm" in done.err
    assert list(out.iterdir()) == []


# -- files ----------------------------------------------------------------------------------------------------------------


def stored(path):
    """Name of a module -> the dtype in which the file stores its weights, by the graph's own names."""
    onnx = pytest.importorskip("onnx")
    kinds = {onnx.TensorProto.FLOAT: "float32", onnx.TensorProto.FLOAT16: "float16", onnx.TensorProto.INT8: "int8"}
    tables = [each for each in onnx.load(path).graph.initializer if len(each.dims) == 2]
    return {each.name.partition(".")[0]: kinds[each.data_type] for each in tables}


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "float16"])
def test_exactly_the_bad_layer_stays_in_float32(precision, folder, out, xverify, tmp_path):
    file, report = out / "m.onnx", tmp_path / "r.json"
    common = ("convert", folder, file, "--quantize", precision, "--accept", GATES[precision], "--json", report)
    done = xverify(*common)
    assert done.code == 1, "the file without a layer in float32 does not meet the conditions"
    done = xverify(*common, "--keep", "auto", "--force")
    assert done.code == 0, done.out + done.err
    plan = plan_of(report)
    assert kept(plan) == {BAD[precision]}
    assert plan["layers"][0]["layer"] == BAD[precision]
    assert plan["layers"][0]["overflows"] is (precision == "float16")
    bad = BAD[precision].split("/")[1]
    assert stored(file) == {name: "float32" if name == bad else precision for name in stored(file)}
    [chosen] = [each for each in plan["files"] if each["chosen"]]
    assert chosen["kept"] == [BAD[precision]]
    assert chosen["unmet"] == []
    assert chosen["bytes"] == file.stat().st_size
    row = json.loads(report.read_text())["rows"][-1]
    assert chosen["figures"]["y"] == row["figures"]["y"], "the check has the figures of the plan"
    assert [len(each["kept"]) for each in plan["files"]] == sorted([5, 1, 0], reverse=True)
    assert "1 of 5 layers in float32" in done.out.splitlines()[-1]
    assert f"in float32: {BAD[precision]}" in done.out


@pytest.mark.slow
def test_as_few_layers_stay_in_float32_as_in_the_best_of_all_files(folder, out, xverify, tmp_path, monkeypatch):
    """Files of all choices of layers, computed by the runtime, against those that the search makes."""
    report = tmp_path / "r.json"
    common = ("convert", folder, out / "m.onnx", "--quantize", "int8", "--keep", "auto", "--force", "--json", report)

    def best(search):
        for size in range(len(search.every) + 1):
            for each in itertools.combinations(sorted(search.every), size):
                if search._try(frozenset(each)):
                    return frozenset(each)
        raise AssertionError("the file in float32 meets no condition")

    counts = {}
    for gate in ("sqnr>=35", "sqnr>=53", "sqnr>=58"):
        found = []
        for execute in (Search.execute, best):
            with monkeypatch.context() as patch:
                patch.setattr(Search, "execute", execute)
                assert xverify(*common, "--accept", gate).code == 0
            found.append(len(kept(plan_of(report))))
        counts[gate] = found
    assert all(searched == fewest for searched, fewest in counts.values()), counts
    assert len({fewest for _, fewest in counts.values()}) == 3, counts


@pytest.mark.slow
def test_conditions_that_no_file_meets_fail_with_what_is_reached_and_the_worst_layer(folder, out, xverify, tmp_path):
    report = tmp_path / "r.json"
    done = xverify(
        *("convert", folder, out / "m.onnx", "--quantize", "int8", "--keep", "auto", "--accept", "sqnr>=300"),
        *("--json", report),
    )
    assert done.code == 1, done.out + done.err
    assert "even with all 5 layers in float32, sqnr>=300: sqnr of y is 1" in done.out
    assert f"{BAD['int8']} costs most: alone in int8 it leaves" in done.out
    assert len(kept(plan_of(report))) == 5
    assert set(stored(out / "m.onnx").values()) == {"float32"}


@pytest.mark.slow
def test_a_search_without_time_writes_the_file_in_float32_and_says_so(folder, out, xverify):
    done = xverify(
        *("convert", folder, out / "m.onnx", "--quantize", "int8", "--keep", "auto", "--accept", "sqnr>=35"),
        *("--max-seconds", 0.001),
    )
    assert done.code == 0, done.out + done.err
    assert "--max-seconds 0.001 ended the search after 2 files; fewer layers in float32 may do" in done.out
    assert "5 of 5 layers in float32" in done.out.splitlines()[-1]
    assert "outputs dB" not in done.out, "no cost was measured"
    assert "more layers" not in done.out


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["int8", "float16"])
@pytest.mark.parametrize("names", ["/outlier/Gemm,huge", "*/outlier/*, huge"])
def test_layers_are_kept_by_name_by_module_and_by_pattern(precision, names, folder, out, xverify):
    done = xverify("convert", folder, out / "m.onnx", "--quantize", precision, "--keep", names, "--accept", "sqnr>=35")
    assert done.code == 0, done.out + done.err
    wide = {name for name, dtype in stored(out / "m.onnx").items() if dtype == "float32"}
    assert wide == {"outlier", "huge"}
    assert "in float32: /outlier/Gemm, /huge/Gemm" in done.out


@pytest.mark.slow
def test_a_file_with_a_single_layer_in_float16_is_judged_at_its_precision(folder, out, xverify, tmp_path):
    report = tmp_path / "r.json"
    done = xverify(
        *(
            "convert",
            folder,
            out / "m.onnx",
            "--quantize",
            "float16",
            "--keep",
            "first,outlier,huge,more",
            "--json",
            report,
        )
    )
    assert done.code == 0, done.out + done.err
    assert "converted, checked: EQUAL at mixed" in done.out.splitlines()[-1]
    assert json.loads(report.read_text())["rows"][-1]["precision"]["weights"] == "float16"


@pytest.mark.slow
def test_a_plan_is_timed_and_shown_in_every_report(no_noise, folder, out, xverify, tmp_path):
    report = tmp_path / "r.json"
    done = xverify(
        *("convert", folder, out / "m.onnx", "--quantize", "int8", "--keep", "auto", "--accept", "sqnr>=35"),
        *("--time", "--warmup", 2, "--rerun", 16, "--threads", 1, "--json", report),
    )
    assert done.code == 0, done.out + done.err
    plan = read(report).plan
    assert [each.speed.calls for each in plan.files] == [16] * len(plan.files)
    assert all(each.speed.fps > 0 and each.speed.counted for each in plan.files)
    row = read(report).rows[-1]
    assert [each.speed.fps for each in plan.files if each.chosen] == [row.speed.fps]
    assert "SQNR dB" in done.out
    assert "(95% interval)" in done.out
    for name in ("html", "markdown"):
        page = tmp_path / f"report.{name}"
        assert xverify("report", report, f"--{name}", page).code == 0
        text = page.read_text()
        assert "Layers in float32, all others in int8" in text.replace("\\", "")
        assert "all 5" in text
        assert "files were tried in" in text


@pytest.mark.slow
def test_a_plan_from_python_and_a_file_that_needs_no_layer_in_float32(folder, out):
    result = package.convert(folder, out / "m.onnx", quantize="float16", keep="auto", accept="sqnr>=-1000,cosine>=-1")
    assert result.plan is not None
    # An overflow is INVALID whatever the conditions are, so that the layer stays in float32.
    assert [layer.layer for layer in result.plan.layers if layer.kept] == [BAD["float16"]]
    result = package.convert(folder, out / "n.onnx", quantize="int8", keep="auto", accept="sqnr>=-1000")
    assert not any(layer.kept for layer in result.plan.layers)
    assert [len(each.kept) for each in result.plan.files] == [5, 0]


# -- graphs -------------------------------------------------------------------------------------------------------------


def test_every_node_of_a_graph_is_in_one_layer():
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    from xverify.converters._onnx_layers import layers_of, named

    def node(kind, inputs, output):
        return helper.make_node(kind, inputs, [output])

    nodes = [
        node("Mul", ["x", "scale"], "a"),
        node("MatMul", ["a", "w"], "b"),
        node("Relu", ["b"], "c"),
        node("Constant", [], "two"),
        node("ReduceMean", ["c"], "mean"),
        node("Sub", ["c", "mean"], "d"),
        node("Pow", ["d", "two"], "e"),
        node("ReduceMean", ["e"], "f"),
        node("Div", ["d", "f"], "g"),
        node("MatMul", ["g", "w"], "h"),
        node("Add", ["h", "a"], "y"),
    ]
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None) for name in ("x", "y")]
    weights = [helper.make_tensor("w", onnx.TensorProto.FLOAT, (2, 2), [1.0, 2.0, 3.0, 4.0])]
    graph = named(helper.make_model(helper.make_graph(nodes, "g", values[:1], values[1:], weights))).graph
    found = layers_of(graph)
    assert [(layer.kind, len(layer.nodes)) for layer in found] == [("MatMul", 3), ("ReduceMean", 6), ("MatMul", 2)]
    assert sorted(name for layer in found for name in layer.nodes) == sorted(each.name for each in graph.node)
    assert "Constant_3" in found[1].nodes
    assert [layer.kind for layer in layers_of(graph, {"MatMul"})] == ["MatMul", "MatMul"]
