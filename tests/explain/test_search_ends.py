"""A search for causes ends in time, also where one trial would never end."""

import time
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayedports import model, random, replayed  # noqa: E402
from torch import nn  # noqa: E402

from xverify.explain import explanation, own_mistakes  # noqa: E402
from xverify.explain.deadline import Deadline, OutOfTime  # noqa: E402
from xverify.explain.faults.glue import catalogue  # noqa: E402
from xverify.explain.faults.glue.operation import Change, first_argument  # noqa: E402
from xverify.float64.own_step import Code, Steps  # noqa: E402
from xverify.framework.own_state import Held  # noqa: E402

IN_TIME = 10.0  # seconds of computation; without a limit none of these searches ends


class Clock:
    def __init__(self):
        self.now = 0.0

    def __call__(self):
        self.now += 1.0
        return self.now


def test_a_computation_is_ended_at_its_next_operation_although_the_code_catches_exceptions():
    def compute():
        x = torch.zeros(1)
        while True:
            with suppress(Exception):  # as code of a user may have it
                x = x + 1

    deadline = Deadline(5.0, Clock())
    with pytest.raises(OutOfTime), deadline.limited():
        compute()
    assert deadline.left <= 0
    reached = False
    with pytest.raises(OutOfTime), deadline.limited():
        reached = True
    assert not reached


def test_the_time_of_all_contexts_is_counted_together():
    deadline = Deadline(100.0, Clock())
    with deadline.limited():
        torch.zeros(1)
    left = deadline.left
    with deadline.limited():
        torch.zeros(1)
    assert deadline.left < left < 100.0


def _diverging(operation):
    def compute(x):
        while True:
            x = x * 2 + 1

    if operation.name == "tanh":
        yield Change("endless", "never ends", first_argument(compute))


def test_the_search_in_glue_code_ends_although_a_trial_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(catalogue, "FAMILIES", (*catalogue.FAMILIES, _diverging))
    monkeypatch.setattr(explanation, "SECONDS", 0.5)
    linear = "self.a, self.b = nn.Linear(16, 16), nn.Linear(16, 16)"
    reference = model(linear, "return self.b(torch.tanh(self.a(x)))")
    begun = time.process_time()
    layers = replayed(tmp_path, reference, reference.replace("self.a(x))", "self.a(x) ** 3 + 0.7)"), random(2, 6, 16))
    assert time.process_time() - begun < IN_TIME
    assert layers.verdict == "DIFFERENT"
    assert layers.first.glue is None or not layers.first.glue
    assert "the search for causes ended after 0.5 s of computation" in layers.notes


def _steps(folder):
    """A step that repeats its update until the loss is small, which it never is with gradients that are not zeroed."""

    def build(float64):
        torch.manual_seed(0)
        linear = nn.Linear(4, 1, bias=False)
        return linear.double() if float64 else linear

    def start(linear):
        optimizer = torch.optim.SGD(linear.parameters(), lr=0.1)

        def step(batch):
            while True:
                optimizer.zero_grad()
                loss = linear(batch["x"]).square().mean()
                loss.backward()
                optimizer.step()
                if float(loss.detach()) < 1e-12:
                    return {"loss": loss.detach()}

        return step, {"": optimizer}, SimpleNamespace(read=lambda: Held((), {}))

    @contextmanager
    def watch(_linear):
        yield []

    def load(linear, file):
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(np.load(file)))

    def read(linear):
        return {"weight": linear.weight.detach().double().numpy().copy()}

    weights = folder / "weights.npy"
    np.save(weights, np.full((1, 4), 0.5))
    return Steps(Code(build, start, load, read, watch, {"weight": "weight"}), [str(weights)], [{"x": random(8, 4)}])


def test_the_search_in_a_training_step_ends_although_a_step_with_a_mistake_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(own_mistakes, "SECONDS", 0.5)
    steps = _steps(tmp_path)
    exact = list(steps.drive())[-1].after
    tried = []

    def endless(optimizers):
        for mistake in own_mistakes.mistakes_in_gradients(optimizers):
            tried.append(mistake.says)
            yield mistake

    monkeypatch.setattr(own_mistakes, "PLACES", {"gradients": endless})
    begun = time.process_time()
    found = own_mistakes.explain(steps, {"weight": exact["weight"] + 1.0}, exact, {"weight": 1e-9}, "gradients")
    assert time.process_time() - begun < IN_TIME
    assert found == ("", "")
    assert tried == ["the gradients of the optimizer are not zeroed"]  # it took all of the time
