"""The noise floors of whole outputs, from a reference that answers from memory."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from xverify.progress import Listener
from xverify.reference import truth
from xverify.reference.build import Prepared, ReferenceProcess
from xverify.weights import npz
from xverify.worker.messages_reference import FloorsMeasured, LayersListed, ListLayers, NoiseFloors, OutputFloor
from xverify.worker.messages_soundness import Repeat, Repeated
from xverify.workload.spec import ModelSpec, TensorSpec

SIZES = (1.0, 100.0)  # rms of the output in each case
FLOORS = (3e-7, 4e-5)  # rms of its noise, as the worker measures it


class Answers:
    """A worker of torch, which measured these noise floors."""

    def __init__(self, folder):
        self.folder = folder

    def ask(self, question):
        if isinstance(question, ListLayers):
            return LayersListed(("fc",))
        if isinstance(question, Repeat):
            return Repeated("", 0.0, ())
        assert isinstance(question, NoiseFloors)
        outputs = {f"{case}/y": size * np.array([[1.0, -1.0]]) for case, size in enumerate(SIZES)}
        npz.save_file(outputs, Path(question.path))
        floors = {f"{case}/y": OutputFloor(floor, SIZES[case]) for case, floor in enumerate(FLOORS)}
        return FloorsMeasured(floors, untested=("fc.bias",), tested=("fc.weight",))


def test_the_noise_of_an_output_is_relative_to_its_size_the_same_in_every_case(tmp_path):
    spec = ModelSpec(inputs={"x": TensorSpec(("N", 2))}, outputs={"y": TensorSpec(("N", 2))})
    request, folder = SimpleNamespace(reference="torch", cases=2, seed=0), SimpleNamespace(spec=spec)
    inputs = tmp_path / "inputs.npz"
    prepared = Prepared(tmp_path / "weights.npz", "", "", {}, inputs, inputs, "", "", inputs, inputs, {})
    process = ReferenceProcess(request, folder, Answers(tmp_path), Listener())
    found = truth.evaluate(process, prepared, {})
    relative = math.sqrt((3e-7**2 + 4e-7**2) / 2)
    assert found.noise_floors == {"0/y": pytest.approx(relative), "1/y": pytest.approx(100 * relative)}
    assert (found.layers, found.tested, found.untested) == (("fc",), ("fc.weight",), ("fc.bias",))
    assert (found.precision, found.replay_problem, found.constant) == ("float64", "", ())
    assert found.outputs["1/y"].tolist() == [[100.0, -100.0]]
