"""What a run says about the memory of its weights and activations, before its subjects build their models."""

import pytest
from conftest import TORCH_MODEL, write_folder

from xverify import host, run
from xverify.engine import memory
from xverify.engine.memory import Work
from xverify.engine.stages import Subject
from xverify.framework.adapter import Activations
from xverify.framework.discovery import load
from xverify.progress import Listener
from xverify.workload.optimizers import optimizer

GIB, MIB = 2**30, 2**20
TORCH, NUMPY, EXPORT = load("torch"), load("numpy"), load("onnxruntime")
WIDE = TORCH_MODEL.replace("self.fc1(x)", "self.fc1(x.repeat(1, 2**17).view(len(x), -1, 8)[:, 0])")
DEPENDENT = WIDE.replace("        return", "        assert x.isfinite().all()\n        return")


def test_each_process_counts_the_weights_as_often_as_it_has_them():
    small = Work({"w": (2**10, 2**10)})  # 4 MiB, and 24 MiB of the reference while it judges the layer
    assert memory.needed(small, [TORCH]) == pytest.approx((4 + 8 + 24 + 1.2 * 4) * MIB, abs=1)
    assert memory.of_models(small, [TORCH, NUMPY]) - memory.of_models(small, [TORCH]) == pytest.approx(4 * 4 * MIB)
    large = Work({f"w{index}": (2**13, 2**13) for index in range(20)})  # 5 GiB, most of them in files of the reference
    assert memory.needed(large, [TORCH]) == pytest.approx((0.5 + 1.5 + 1.2 * 5) * GIB, abs=1)


def test_training_adds_gradients_and_the_state_of_the_optimizer():
    shapes, torch = {"w": (2**10, 2**10)}, [TORCH]
    added = memory.of_models(Work(shapes, optimizer("adam")), torch) - memory.of_models(Work(shapes), torch)
    assert added == 3 * (1 + 2) * 4 * MIB  # in the port, and in both models of the reference
    assert memory.needed(Work(shapes, optimizer("adam")), torch) == pytest.approx((12 + 24 + 1.2 * 4 + 36) * MIB, abs=1)


def of_activations(subjects, whole, judged, optimizer=None):
    work = Work({}, optimizer, whole, judged)
    return memory.needed(work, subjects) / MIB


def test_the_processes_that_need_most_for_their_activations_are_counted():
    whole, judged = Activations(10 * MIB, 500 * MIB, 0), Activations(MIB, 50 * MIB, 0)
    assert of_activations([TORCH], whole, judged) == 40 + 40, "a subject, and the reference"
    assert of_activations([TORCH, NUMPY], whole, judged) == 40 + 40, "two processes compute at a time"
    assert of_activations([TORCH, EXPORT], whole, judged) == pytest.approx(1.2 * 500 + 9 * 10), (
        "an export is judged on the whole batch"
    )
    assert of_activations([TORCH], whole, Activations(9 * MIB, 450 * MIB, 0)) == 40 + 9 * 9, "three passes side by side"


def test_the_reference_unfolds_the_input_of_a_convolution_in_float64():
    whole, judged = Activations(MIB, MIB, 90 * MIB), Activations(MIB, MIB, 30 * MIB)
    assert of_activations([], whole, judged) == 2 * 90 + 4, "the outputs of the whole batch"


def test_training_keeps_all_activations():
    whole = Activations(10 * MIB, 500 * MIB, 0)
    assert of_activations([TORCH], whole, whole, optimizer("sgd")) == pytest.approx(2.2 * 500 + 2 * 500)


def test_the_note_says_what_the_estimate_is_of():
    known = Work({}, None, Activations(), Activations())
    assert memory.says(known, 3 * GIB, 2 * GIB) == (
        "weights and activations take about 3.0 GiB of memory in all processes; 2.0 GiB are available"
    )
    assert memory.warning(known, 2 * GIB, 2 * GIB) == ""
    assert "Use a machine with more memory" in memory.warning(known, 3 * GIB, 2 * GIB)
    assert memory.warning(Work({}), 3 * GIB, 2 * GIB).startswith(
        "weights alone (the sizes of activations are not known)"
    )


def test_little_is_not_worth_a_line():
    subjects = [Subject(NUMPY, "eager")]
    assert memory.plan(Work({"w": (2**10, 2**10)}), subjects, 99 * GIB).says == ""
    assert "99.0 GiB are available" in memory.plan(Work({"w": (2**14, 2**14)}), subjects, 99 * GIB).says


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "spare", "note"),
    [
        (WIDE, 50, "weights and activations"),
        (WIDE, 400, ""),
        (DEPENDENT, 50, ""),
        (DEPENDENT, -50, "weights alone (the sizes of activations are not known)"),
    ],
)
def test_activations_count_where_they_are_known(tmp_path, model, spare, note):
    folder = write_folder(tmp_path / "port")
    (folder / "torch.py").write_text(model)
    room = memory.overhead([TORCH, NUMPY]) + spare * MIB
    subjects = ["torch:eager", "numpy"]
    result = run(folder, subjects=subjects, batch=8, no_timing=True, total_memory=room / 1e9)
    assert result.verdict == "PASS"
    found = [each for each in result.notes if "of memory in all processes" in each]
    assert [each.startswith(note) for each in found] == ([True] if note else [])


@pytest.mark.parametrize(("available", "warned"), [(10, True), (10 * GIB, False)])
def test_a_run_that_needs_more_than_there_is_says_so_and_goes_on(tmp_path, monkeypatch, available, warned):
    notes = []

    class Notes(Listener):
        def note(self, text):
            notes.append(text)

    monkeypatch.setattr(host, "available_memory", lambda: available)
    folder = write_folder(tmp_path / "port", ("numpy",))
    result = run(folder, subjects=["numpy"], no_timing=True, listener=Notes())
    assert result.verdict == "INCONCLUSIVE"  # the reference alone
    assert any("memory in all processes" in note for note in result.notes) == warned
    assert any("memory in all processes" in note for note in notes) == warned
