"""The README's five minutes, as a new user would spend them: its code blocks, in its order."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parent.parent / "README.md").read_text()


def files():
    """Path -> text of every file that the README tells its reader to write."""
    return dict(re.findall(r"^`(my_port/\w+\.py)`.*?```python\n(.*?)```", README, re.MULTILINE | re.DOTALL))


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

    pads = '0: pads one less before and one more behind each axis, as "same" does at a stride of 2'
    eps = "1: behaves as eps=0.001; the reference has 1e-05"
    assert pads in README
    assert eps in README
    assert verdict() == (1, "DIFFERENT", f"{pads}; {eps}")
    convolution = '    x = layers.Conv2D(32, 3, strides=2, padding="same", name="0")(x)\n'
    text = keras.read_text()
    assert convolution in text
    padded = '    x = layers.ZeroPadding2D(1)(x)\n    x = layers.Conv2D(32, 3, strides=2, name="0")(x)\n'
    keras.write_text(text.replace(convolution, padded))
    assert verdict() == (1, "DIFFERENT", eps)
    keras.write_text(
        keras.read_text().replace('BatchNormalization(name="1")', 'BatchNormalization(epsilon=1e-5, name="1")')
    )
    assert verdict() == (0, "EQUAL", None)


@pytest.mark.slow
def test_the_python_example_runs(tmp_path, capsys):
    [example] = re.findall(r"```python\n(import xverify\n.*?)```", README, re.DOTALL)
    exec(example, {})
    assert capsys.readouterr().out.startswith("PASS [('torch:eager', ")


def test_every_command_and_model_of_the_readme_exists():
    from xverify.commands._main import commands
    from xverify.workload.spec import zoo

    told = set(re.findall(r"`xverify (\w+)", README))
    assert set(commands()) <= told <= {*commands(), "models"} | {"run"}
    assert "resnet50" in zoo()


def test_the_table_of_what_runs_what_is_the_command_s(capsys):
    from xverify.commands._main import main

    assert main(["list", "--markdown"]) == 0
    [table] = re.findall(r"<!-- xverify list --markdown -->\n(.*?)<!-- end of the table -->", README, re.DOTALL)
    assert table == capsys.readouterr().out, "write the output of `xverify list --markdown` into README.md"


def test_the_table_of_mutations_is_one_that_the_command_prints():
    from xverify.commands.mutate import COLUMNS

    [table] = re.findall(r"<!-- xverify mutate -->\n(.*?)\n<!--", README, re.DOTALL)
    head, _, *rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()]
    assert tuple(head) == COLUMNS
    for row in rows:
        planted, caught, _, _, untested, missed, *_ = map(int, row[1:])
        assert planted == caught + untested + missed
    assert rows[-1][0] == "all"
    assert [sum(map(int, column)) for column in list(zip(*rows[:-1]))[1:]] == list(map(int, rows[-1][1:]))
