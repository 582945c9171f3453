"""The noise floors of whole outputs, from a reference that answers from memory."""

import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from xverify.errors import Failed
from xverify.messages.reference import Evaluate, FloorsMeasured, InputsReach, ListLayers, NoiseFloors, WatchInputs
from xverify.messages.soundness import Repeat, Repeated
from xverify.progress import Listener
from xverify.reference import truth
from xverify.reference.build import Prepared, ReferenceProcess
from xverify.weights import npz
from xverify.workload.spec import ModelSpec, TensorSpec

SIZES = (1.0, 100.0)  # rms of the output in each case
FLOORS = (3e-7, 4e-5)  # rms of its noise, as the worker measures it


class Answers:
    """A worker of torch, which measured these noise floors.

    shape: of the output of one item. refused: a number of items that its model cannot take. flat: whether it drops an axis of 1.
    asked: the number of items of each measurement.
    """

    def __init__(self, folder, shape=(2,), refused=None, flat=False):
        self.folder, self.shape, self.refused, self.flat, self.asked = folder, shape, refused, flat, []

    def ask(self, question):
        if isinstance(question, ListLayers):
            return ("fc",)
        if isinstance(question, Repeat):
            return Repeated("", 0.0, ())
        if isinstance(question, WatchInputs):
            return InputsReach()
        if isinstance(question, NoiseFloors):
            self.asked.append(len(npz.OnDisk(Path(question.inputs))["0/x"]))
            if self.asked[-1] == self.refused:
                raise Failed("the reference fails")
        items = len(npz.OnDisk(Path(question.inputs))["0/x"])
        alternating = np.where(np.arange(items * math.prod(self.shape)) % 2, -1.0, 1.0).reshape(items, *self.shape)
        outputs = {f"{case}/y": size * alternating for case, size in enumerate(SIZES)}
        if self.flat:
            outputs = {key: np.squeeze(array) for key, array in outputs.items()}
        npz.save_file(outputs, Path(question.path))
        if isinstance(question, Evaluate):
            return {key: array.shape for key, array in outputs.items()}
        noise = {f"{case}/y": np.full(outputs[f"{case}/y"].shape, floor) for case, floor in enumerate(FLOORS)}
        npz.save_file(noise, Path(question.noise))
        return FloorsMeasured(untested=("fc.bias",), tested=("fc.weight",))


def evaluated(worker, batch):
    spec = ModelSpec(inputs={"x": TensorSpec(("N", 2))}, outputs={"y": TensorSpec(("N", *worker.shape))})
    request = SimpleNamespace(reference="torch", cases=2, seed=0, batch=batch)
    inputs = worker.folder / "inputs.npz"
    npz.save_file({f"{case}/x": np.ones((batch, 2), np.float32) for case in range(2)}, inputs)
    prepared = Prepared(worker.folder / "weights.npz", "", "", {}, inputs, inputs, "", "", inputs, inputs, {})
    process = ReferenceProcess(request, SimpleNamespace(spec=spec), worker, Listener())
    return truth.evaluate(process, prepared, {})


def test_no_floor_is_pooled_over_cases(tmp_path):
    found = evaluated(Answers(tmp_path), batch=1)
    assert [found.noise_floors[f"{case}/y"].tolist() for case in range(2)] == [[[floor] * 2] for floor in FLOORS]
    assert (found.layers, found.tested, found.untested) == (("fc",), ("fc.weight",), ("fc.bias",))
    assert (found.precision, found.replay_problem, found.constant) == ("float64", "", ())
    assert found.outputs["1/y"].tolist() == [[100.0, -100.0]]


def test_one_item_of_many_values_is_enough_for_the_noise_and_all_items_for_the_outputs(tmp_path):
    worker = Answers(tmp_path, shape=(300,))
    found = evaluated(worker, batch=3)
    assert worker.asked == [1]
    assert found.outputs["1/y"].shape == found.noise_floors["1/y"].shape == (3, 300)
    assert found.noise_floors["1/y"] == pytest.approx(np.full((3, 300), 4e-5))


@pytest.mark.parametrize(
    ("options", "asked"),
    [
        ({"shape": (20,)}, [3]),
        ({"shape": (300,), "refused": 1}, [1, 3]),
        ({"shape": (300,), "flat": True}, [1, 3]),
    ],
    ids=["few values", "a model that fails with one item", "a model that drops an axis of one item"],
)
def test_all_items_are_measured_where_one_is_not_enough(tmp_path, options, asked):
    worker = Answers(tmp_path, **options)
    assert evaluated(worker, batch=3).outputs["1/y"].shape == (3, *worker.shape)
    assert worker.asked == asked
