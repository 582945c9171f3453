"""The worked examples of docs/extending.md and docs/adding-a-framework.md, run as they are written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = "\n".join((ROOT / "docs" / f"{page}.md").read_text() for page in ("extending", "adding-a-framework"))


def write_files(folder, under):
    """Write every file of this folder that the text shows; return their names."""
    found = re.findall(rf"^`({under}/[\w.]+)`[^\n]*\n\n```python\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
    for path, text in found:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return {Path(path).name for path, _ in found}


@pytest.mark.slow
def test_the_model_and_its_variant_pass(xverify, tmp_path):
    assert write_files(tmp_path, "tiny") == {"spec.py", "torch.py", "jittor.py", "tensorflow.py"}
    assert write_files(tmp_path, "tiny-wide") == {"spec.py"}
    for name in ("tiny", "tiny-wide"):
        subjects = "torch:eager,jittor,tensorflow:eager,tensorflow:graph,onnxruntime"
        done = xverify("run", tmp_path / name, "--subjects", subjects, "--warmup", 1, "--rerun", 4, timeout=900)
        assert done.out.splitlines()[-1].startswith(f"PASS {name}: 5 of 5 subjects"), done.out
    assert done.result["weights"]["parameters"] == 64 * 3 * 9 + 64 + 64 * 10 + 10


@pytest.mark.slow
def test_the_mode_runs(xverify, tmp_path):
    [function] = re.findall(r"```python\n(def frozen\(.*?)```", TEXT, re.DOTALL)
    [entry] = re.findall(r"`modes = \{(\"frozen\": frozen), \.\.\.\}`", TEXT)
    source = (ROOT / "xverify" / "frameworks" / "torch" / "adapter.py").read_text()
    assert source.count("class Adapter(") == source.count("    modes = {") == 1
    source = source.replace("class Adapter(", f"{function}\n\nclass Adapter(").replace(
        "    modes = {", f"    modes = {{{entry}, "
    )
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "torch.py").write_text(source)
    done = xverify(
        "run",
        "mlp",
        "--subjects",
        "torch:eager,torch:frozen",
        "--warmup",
        1,
        "--rerun",
        4,
        frameworks=tmp_path / "mine",
    )
    assert done.code == 0, done.out + done.err
    assert done.row("torch:frozen")["error"]["verdict"] in ("EQUAL", "IDENTICAL")


@pytest.mark.slow
def test_the_framework_runs(xverify, tmp_path):
    assert write_files(tmp_path, "mine") == {"onnxreference.py", "openvinotorch.py"}
    done = xverify(
        "run",
        "mlp",
        "--subjects",
        "torch:eager,onnxreference",
        "--warmup",
        1,
        "--rerun",
        4,
        frameworks=tmp_path / "mine",
    )
    assert done.code == 0, done.out + done.err
    assert done.row("onnxreference")["error"]["verdict"] in ("EQUAL", "IDENTICAL")
    assert done.row("onnxreference")["weights_digest"] == done.result["weights"]["digest"]


@pytest.mark.slow
def test_the_runtime_of_another_framework_s_model_runs(xverify, tmp_path):
    assert "openvinotorch.py" in write_files(tmp_path, "mine")
    subjects = "torch:eager,openvinotorch"
    done = xverify("run", "mlp", "--subjects", subjects, "--no-timing", frameworks=tmp_path / "mine")
    assert done.code == 0, done.out + done.err
    row = done.row("openvinotorch")
    assert row["error"]["verdict"] == "EQUAL"
    assert row["weights_digest"] == done.result["weights"]["digest"]


def test_the_fault_computes_something_else_and_leaves_the_layer_as_it_was():
    torch = pytest.importorskip("torch")
    pytest.importorskip("greenlet")
    from xverify.explain.faults import activation, catalogue, changes

    [code] = re.findall(r"```python\n(def prelu\(.*?)```", TEXT, re.DOTALL)
    names = {**vars(changes), **vars(activation)}
    exec(code, names)
    [kind, function] = re.findall(r"`\((nn\.\w+), (activation\.\w+)\)`", TEXT)[0]
    assert (kind, function) == ("nn.PReLU", "activation.prelu")
    assert not any(each is torch.nn.PReLU for each, _ in catalogue.TABLE), (
        "take another example: this one is in the catalogue"
    )
    layer, x = torch.nn.PReLU(3), torch.randn(2, 3, 4, generator=torch.Generator().manual_seed(0))
    layer.weight.data.copy_(torch.tensor([0.1, 0.2, 0.6]))
    [fault] = names["prelu"](layer)
    faulty, right = fault.forward(layer, layer.forward, x), layer(x)
    assert torch.equal(faulty, torch.nn.functional.prelu(x, torch.tensor([0.3, 0.3, 0.3])))
    assert not torch.allclose(faulty, right)
    assert layer.weight.tolist() == pytest.approx([0.1, 0.2, 0.6])
    assert list(names["prelu"](torch.nn.PReLU())) == []


def test_the_option_that_is_shown_is_declared_so():
    [line] = re.findall(r"```python\n(cases: .*?)```", TEXT, re.DOTALL)
    assert f"    {line}" in (ROOT / "xverify" / "workload" / "options.py").read_text()


def test_the_request_that_is_shown_exists():
    [request] = re.findall(r"`(class \w+\(Request\[\w+\]\))`", TEXT)
    assert request in (ROOT / "xverify" / "messages" / "__init__.py").read_text()
