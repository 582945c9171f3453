"""docs/acceptable.md: its commands are run as they are written, and its figures are those that they print."""

import re
import shlex
from pathlib import Path

import pytest
import test_tutorial

PAGE = (Path(__file__).parent.parent / "docs" / "acceptable.md").read_text()
SUBJECTS = "--subjects torch:eager,tensorflow:graph --no-timing"


def commands():
    return [shlex.split(line)[2:] for line in re.findall(r"^\$ xverify .*$", PAGE, re.MULTILINE)]


def stated():
    """What a model is -> the relative error that the first table of the page gives."""
    return {name: float(error) for name, error in re.findall(r"^\| ([^|]+?) \| (\de-\d) \|", PAGE, re.MULTILINE)}


def error(text, row):
    """The relative error in the last row of a report that begins so."""
    return float(re.findall(rf"^{row} +(?:\S+ +)*?(\d\.\d+(?:e-\d\d)?)", text, re.MULTILINE)[-1])


def replace(file, old, new):
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))


@pytest.mark.slow
def test_the_five_steps_give_the_answers_of_the_page(tmp_path, xverify):
    here = tmp_path / "here"  # where the commands are run
    (here / "my_port").mkdir(parents=True)
    for path, text in test_tutorial.files().items():
        (here / path).write_text(text)
    done = [xverify(*words) for words in commands()]
    assert [each.code for each in done] == [1, 1, 1, 0, 0, 0, 0, 1, 1], done[0].err
    run, required, explained, _, _, _, _, accepted, trained = (each.out for each in done)
    for line in (
        "  tensorflow:graph: norm: behaves as eps=0.001; the reference has 1e-05",
        "1 of 2 subjects EQUAL, 1 DIFFERENT",
    ):
        assert line in PAGE
        assert all(line in text for text in (run, required))
    assert "norm: behaves as eps=0.001" in explained
    assert "sqnr>=30 does not hold: 21." in accepted
    end, *_ = re.findall(r"tensorflow:graph: end losses SAME within ±(\S+)", trained)
    assert float(end) <= 5e-5
    assert re.search(r"^tensorflow:graph +EQUAL +DIFFERENT .* EQUAL$", trained, re.MULTILINE), "the curve is EQUAL"
    figures = {
        "the port with another eps": error(run, "tensorflow:graph"),
        "the file in float16": error(done[4].out, "fp16.onnx"),
        "the file in int8": error(done[5].out, "int8.onnx"),
    }
    replace(here / "my_port" / "spec.py", '("N", 16))', '("N", 16), low=-0.1, high=0.1)')
    small = error(xverify("run", "./my_port", *SUBJECTS.split()).out, "tensorflow:graph")
    figures["the port with another eps, and inputs between -0.1 and 0.1"] = small
    replace(here / "my_port" / "spec.py", ", low=-0.1, high=0.1", "")
    replace(here / "my_port" / "tensorflow.py", "LayerNormalization(", "LayerNormalization(epsilon=1e-5, ")
    right = xverify("run", "./my_port", *SUBJECTS.split())
    assert right.code == 0
    figures["the port with the right eps"] = error(right.out, "tensorflow:graph")
    assert figures.keys() == stated().keys()
    assert {name: round(value / stated()[name]) for name, value in figures.items()} == dict.fromkeys(figures, 1)
