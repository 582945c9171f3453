"""What a run says about the memory of its weights, before its subjects build their models."""

import pytest
from conftest import write_folder

from xverify import host, run
from xverify.engine import memory
from xverify.framework.discovery import load
from xverify.progress import Listener
from xverify.workload.optimizers import optimizer

GIB = 2**30


def test_each_process_counts_the_weights_as_often_as_it_has_them():
    torch, other = load("torch"), load("numpy")
    small = {"w": (2**10, 2**10)}  # 4 MiB, and 24 MiB of the reference while it judges the layer
    assert memory.of_weights(small, [torch]) == pytest.approx((4 + 8 + 24 + 1.2 * 4) * 2**20)
    assert memory.of_weights(small, [torch, other]) - memory.of_weights(small, [torch]) == 4 * 4 * 2**20
    large = {f"w{index}": (2**13, 2**13) for index in range(20)}  # 5 GiB, most of them in files of the reference
    assert memory.of_weights(large, [torch]) == pytest.approx((0.5 + 1.5 + 1.2 * 5) * GIB)


def test_training_adds_gradients_and_the_state_of_the_optimizer():
    shapes, torch = {"w": (2**10, 2**10)}, [load("torch")]
    added = memory.of_weights(shapes, torch, optimizer("adam")) - memory.of_weights(shapes, torch)
    assert added == 3 * (1 + 2) * 4 * 2**20  # in the port, and in both models of the reference


def test_only_what_matters_is_said():
    assert memory.says(GIB // 2, 2 * GIB) == memory.warning(GIB // 2, 2 * GIB) == memory.warning(2 * GIB, 2 * GIB) == ""
    assert memory.says(3 * GIB, 2 * GIB).startswith(
        "the weights take about 3.0 GiB of memory in all processes; 2.0 GiB"
    )
    assert "Use a machine with more memory" in memory.warning(3 * GIB, 2 * GIB)


@pytest.mark.parametrize(("available", "warned"), [(10, True), (10 * GIB, False)])
def test_a_run_that_needs_more_than_there_is_says_so_and_goes_on(tmp_path, monkeypatch, available, warned):
    notes = []

    class Notes(Listener):
        def note(self, text):
            notes.append(text)

    monkeypatch.setattr(host, "available_memory", lambda: available)
    folder = write_folder(tmp_path / "port", ("numpy",))
    result = run(folder, subjects=["numpy"], no_timing=True, listener=Notes())
    assert result.verdict == "PASS"
    assert any("memory in all processes" in note for note in result.notes) == warned
    assert any("memory in all processes" in note for note in notes) == warned
