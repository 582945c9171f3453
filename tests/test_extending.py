"""The worked examples of docs/extending.md, run as they are written."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
TEXT = (ROOT / "docs" / "extending.md").read_text()

pytestmark = pytest.mark.slow


def write_files(folder, under):
    """Write every file of this folder that the text shows; return their names."""
    found = re.findall(rf"^`({under}/[\w.]+)`[^\n]*\n\n```python\n(.*?)```", TEXT, re.MULTILINE | re.DOTALL)
    for path, text in found:
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_text(text)
    return {Path(path).name for path, _ in found}


def test_the_model_and_its_variant_pass(xverify, tmp_path):
    assert write_files(tmp_path, "tiny") == {"spec.py", "torch.py", "jittor.py", "tensorflow.py"}
    assert write_files(tmp_path, "tiny-wide") == {"spec.py"}
    for name in ("tiny", "tiny-wide"):
        subjects = "torch:eager,jittor,tensorflow:eager,tensorflow:graph,onnxruntime"
        done = xverify("run", tmp_path / name, "--subjects", subjects, "--warmup", 1, "--rerun", 4, timeout=900)
        assert done.out.splitlines()[-1].startswith(f"PASS {name}: 5 of 5 subjects"), done.out
    assert done.result["weights"]["parameters"] == 64 * 3 * 9 + 64 + 64 * 10 + 10


def test_the_mode_runs(xverify, tmp_path):
    [function] = re.findall(r"```python\n(def frozen\(.*?)```", TEXT, re.DOTALL)
    [entry] = re.findall(r"`modes = \{(\"frozen\": frozen), \.\.\.\}`", TEXT)
    source = (ROOT / "xverify" / "frameworks" / "torch.py").read_text()
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


def test_the_framework_runs(xverify, tmp_path):
    assert write_files(tmp_path, "mine") == {"onnxreference.py"}
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
