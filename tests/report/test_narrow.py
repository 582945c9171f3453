"""Tables and sentences in narrow terminals and in pipes."""

import io
from dataclasses import replace

import pytest
from helpers.sampleresults import RESULT

from xverify.report import detection, layers, quantisation
from xverify.report.terminal import WIDE, Output, console, render
from xverify.results.layers import LayerError, Layers
from xverify.results.precision import LayerCost, Quantisation
from xverify.results.records import Error, TensorError

NODES = [f"/encoder/layers.{index}/attention/self/query/MatMul" for index in range(4)]
ROW = replace(RESULT.rows[0], training=None)


def printed(show, width, terminal=True):
    out = Output(file=io.StringIO(), width=width, force_terminal=terminal, color_system=None)
    show(out)
    return out.file.getvalue()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_what_quantisation_costs_fits_and_names_are_told_by_their_ends(width):
    costs = [LayerCost(name, "MatMul", name[1:].replace("/", "."), 0.1, 39.9, 0.1, 42.8, 0.2) for name in NODES]
    row = replace(ROW, quantisation=Quantisation(tuple(costs), known=4))
    text = printed(lambda out: quantisation.render(row, out), width)
    assert max(map(len, text.splitlines())) <= width
    assert "share" in text
    assert "i…" not in text
    assert sum(line.split()[0].endswith("query/MatMul") for line in text.splitlines() if "20.0%" in line) == len(NODES)


@pytest.mark.parametrize("width", [40, 60, 80])
def test_a_table_of_layers_fits(width):
    found = tuple(LayerError(name, "MatMul", 1, 0.4, 0.5, 0.0, "EQUAL", rel_rms=1e-7) for name in NODES)
    row = replace(ROW, error=Error("EQUAL", layers=Layers(found, 4, 4)))
    lines = printed(lambda out: layers.render(row, out), width).splitlines()
    assert max(map(len, lines)) <= width
    [head] = [line for line in lines if line.startswith("layer ")]
    assert head.split()[-2:] == ["R", "C"] or width == 80


def numbered(count):
    says = "behaves as eps=0.01; the reference has 1e-05"
    found = [LayerError(str(n), "BatchNorm2d", 1, 50.0, 0.0, 0.0, "DIFFERENT", explanation=says) for n in range(count)]
    return Layers(tuple(found), count, count)


def test_a_layer_that_is_a_number_is_told_with_its_kind():
    found = numbered(2)
    assert found.faults[0].says == (
        "layer 0 (BatchNorm2d): behaves as eps=0.01; the reference has 1e-05 (also layer 1)"
    )
    wrong_input = replace(found.layers[1], faulty="input", explanation=None)
    assert "between layer 0 and layer 1: the input of layer 1" in wrong_input.says("0")
    assert "`fc1`" in replace(wrong_input, layer="fc1").says("fc0")


def test_a_sentence_of_several_layers_is_told_once():
    row = replace(ROW, error=Error("DIFFERENT", layers=numbered(3)))
    text = printed(lambda out: layers.render(row, out), 200)
    assert text.count("behaves as eps=0.01") == 1
    assert "in 3 layers (layer 0 (BatchNorm2d), layer 1 (BatchNorm2d), layer 2 (BatchNorm2d)): behaves" in text


def test_a_sentence_of_several_cases_or_subjects_is_told_once():
    tensors = tuple(TensorError(case, "y", undetermined=0.5) for case in (2, 4))
    [says] = detection.undetermined(replace(ROW, error=Error("EQUAL", tensors=tensors)))
    assert says.startswith("y, cases 2, 4: rounding decides 50.0% of the whole numbers")
    rows = tuple(replace(ROW, subject=name, speed=None, error=Error("DIFFERENT", "fc: is wrong")) for name in "ab")
    text = printed(lambda out: render(replace(RESULT, rows=rows, tasks=("forward",)), out), 200)
    assert text.count("fc: is wrong") == 1
    assert "  a, b: fc: is wrong\n" in text


def test_one_line_says_what_the_columns_mean():
    row = replace(ROW, error=Error("EQUAL", noise_ratio=0.5, layers=numbered(3)))
    text = printed(lambda out: render(replace(RESULT, rows=(row, row), tasks=("forward",)), out, by_layer=True), 80)
    assert text.count("R: error / rounding of the layer") == 1
    assert text.count("\n× floor: error / error that rounding explains") == 1


@pytest.mark.parametrize(("columns", "width"), [("", WIDE), ("100", 100), ("0", WIDE), ("wide", WIDE)])
def test_columns_counts_in_a_pipe_and_sentences_are_not_broken_there(monkeypatch, columns, width):
    monkeypatch.setenv("COLUMNS", columns)
    out = console()
    assert out.width == width
    with out.capture() as captured:
        out.print("word " * 100)
    assert captured.get().count("\n") == 1
