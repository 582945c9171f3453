"""The README: short, and its five minutes run as a new user would spend them, with its code blocks in its order."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()
MOST_LINES = 150


def files():
    """Path -> text of every file that the README tells its reader to write."""
    return dict(re.findall(r"^`(my_port/\w+\.py)`.*?```python\n(.*?)```", README, re.MULTILINE | re.DOTALL))


def test_the_readme_is_short():
    assert len(README.splitlines()) <= MOST_LINES


@pytest.mark.slow
def test_the_tutorial_finds_both_faults_and_ends_in_a_pass(xverify, tmp_path):
    assert set(files()) == {"my_port/spec.py", "my_port/torch.py", "my_port/tensorflow.py"}
    (tmp_path / "my_port").mkdir()
    for path, text in files().items():
        (tmp_path / path).write_text(text)
    keras = tmp_path / "my_port" / "tensorflow.py"

    def verdict():
        subjects = "torch:eager,tensorflow:graph,onnxruntime"
        done = xverify("run", tmp_path / "my_port", "--subjects", subjects, "--warmup", 1, "--rerun", 8)
        assert done.row("onnxruntime")["error"]["verdict"] in ("EQUAL", "IDENTICAL")
        error = done.row("tensorflow:graph")["error"]
        return done.code, error["verdict"], error["reason"]

    pads = 'layer 0 (Conv2d): pads one less before and one more behind each axis, as "same" does at a stride of 2'
    eps = "layer 1 (BatchNorm2d): behaves as eps=0.001; the reference has 1e-05"
    assert pads in README
    assert eps in README
    assert verdict() == (1, "DIFFERENT", f"{pads}; {eps}")
    convolution = '    x = layers.Conv2D(32, 3, strides=2, padding="same", name="0")(x)\n'
    text = keras.read_text()
    assert convolution in text
    padded = '    x = layers.ZeroPadding2D(1)(x)\n    x = layers.Conv2D(32, 3, strides=2, name="0")(x)\n'
    assert "`layers.ZeroPadding2D(1)(x)`" in README
    keras.write_text(text.replace(convolution, padded))
    assert verdict() == (1, "DIFFERENT", eps)
    repaired = 'BatchNormalization(epsilon=1e-5, name="1")'
    assert f"`{repaired}`" in README
    keras.write_text(keras.read_text().replace('BatchNormalization(name="1")', repaired))
    assert verdict() == (0, "EQUAL", None)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["jittor", "mlx"])
def test_the_python_example_runs_also_where_a_framework_is_missing(tmp_path, monkeypatch, capsys, other):
    monkeypatch.setenv("XVERIFY_ENVIRONMENTS", str(tmp_path))
    [example] = re.findall(r"```python\n(import xverify\n.*?)```", README, re.DOTALL)
    assert '"jittor"' in example
    exec(example.replace('"jittor"', f'"{other}"'), {})
    out = capsys.readouterr().out
    assert re.match(r"(PASS|ERROR) \[\('torch:eager', <Verdict.IDENTICAL: 'IDENTICAL'>, (None|[\d.]+)\), \('", out), out
    assert out.startswith("PASS") == (f"('{other}', <Verdict." in out), out


MODEL = """
from torch import nn


def build():
    return nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))
"""


@pytest.mark.slow
def test_the_command_for_a_file_finds_another_constant(xverify, tmp_path):
    torch = pytest.importorskip("torch")
    here = tmp_path / "here"
    here.mkdir()
    (here / "model.py").write_text(MODEL)
    space = {}
    exec(MODEL, space)
    model = space["build"]().eval()
    torch.save(model.state_dict(), here / "model.pt")
    model[1].eps = 1e-3
    axes = {"image": {0: "N"}, "logits": {0: "N"}}
    torch.onnx.export(
        model, torch.zeros(1, 3, 10, 10), here / "model.onnx", dynamo=False, input_names=["image"],
        output_names=["logits"], dynamic_axes=axes,
    )  # fmt: skip
    [shown] = re.findall(r"^\$ xverify (check .*\n(?:.+\n)*)```", README, re.MULTILINE)
    command, _, *rows, last = shown.splitlines()
    done = xverify(*command.split())
    assert done.code == 1, done.out + done.err
    found = [line.split() for line in done.out.splitlines() if line.startswith("model.onnx ")]
    assert len(rows) == 2
    for row in rows:  # a wider table has more columns
        name, question, *_, verdict = row.split()
        assert any({name, question, verdict} <= {*words} for words in found), done.out
    assert last.rpartition(";")[0] in done.out
