"""An ONNX export whose weights are in the file of the canonical weights has the same verdict as one that holds its weights."""

from dataclasses import replace

import pytest

from xverify import run
from xverify.reference import exporting
from xverify.weights import onnx as onnx_weights

pytestmark = pytest.mark.slow
ASKED = {"subjects": ["torch:eager", "onnxruntime"], "no_timing": True, "cases": 1}


@pytest.fixture(autouse=True)
def outside(monkeypatch):
    monkeypatch.setattr(exporting, "MOST_INSIDE", 0)


def test_weights_outside_of_the_export_are_those_of_the_run():
    assert [row.error.verdict for row in run("mlp", **ASKED).rows] == ["IDENTICAL", "EQUAL"]


def test_a_wrong_place_of_one_weight_does_not_outlast_loading(monkeypatch):
    refer_to, shifted_names = onnx_weights.refer_to, []

    def shifted(model, places):
        name = next(name for name, place in places.items() if len(place.shape) > 1)
        shifted_names.append(name)
        refer_to(model, places | {name: replace(places[name], offset=places[name].offset - 4)})

    monkeypatch.setattr(onnx_weights, "refer_to", shifted)
    assert [row.error.verdict for row in run("mlp", **ASKED).rows] == ["IDENTICAL", "EQUAL"]
    assert len(shifted_names) == 1
