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

from xverify.explain import explanation, own_search  # noqa: E402
from xverify.explain.deadline import MOST_NESTED, Deadline, OutOfTime  # noqa: E402
from xverify.explain.faults.glue import catalogue  # noqa: E402
from xverify.explain.faults.glue.operation import Change, first_argument  # noqa: E402
from xverify.explain.own_gradients import gradients  # noqa: E402
from xverify.explain.own_mistake import Port  # noqa: E402
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


def test_backward_passes_that_call_themselves_without_end_are_ended():
    """Each takes a thread: a hook of an implicit layer that calls itself took all memory long before the time was over."""
    weight, deepest = torch.ones(1, requires_grad=True), 0

    def hook(gradient):
        nonlocal deepest
        deepest += 1
        with torch.enable_grad():
            inner = weight * 2.0
        inner.register_hook(hook)
        return torch.autograd.grad(inner, weight, gradient)[0]

    def compute():
        output = weight * 3.0
        output.register_hook(hook)
        return torch.autograd.grad(output, weight)

    original = torch.autograd.grad
    with pytest.raises(OutOfTime), Deadline(1000.0).limited():
        compute()
    assert deepest == MOST_NESTED - 1  # the first pass is within no hook
    assert torch.autograd.grad is original


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


def _port(steps):
    """What a port did whose weight is off by 1 after the first step."""
    exact = list(steps.drive())[-1]
    weight, change = exact.after["weight"], exact.changes["weight"]
    return Port(
        found=[{"weight": weight + 1.0}],
        exact=[{"after/weight": weight, "change/weight": change}],
        floors=[{"weight": 1e-9}],
        losses=[{}],
        exact_losses=[{}],
        loss_floors=[{}],
        first=0,
        blamed=["weight"],
        optimizer="",
        factor=float("nan"),
    )


def _noting(tried, catalogue):
    def mistakes(case):
        for mistake in catalogue(case):
            tried.append(mistake.kind)
            yield mistake

    return mistakes


def test_a_trial_in_a_training_step_that_does_not_end_is_left_and_the_others_are_made(tmp_path):
    tried = []
    begun = time.process_time()
    found = own_search.explain(_steps(tmp_path), [_port(_steps(tmp_path))], [_noting(tried, gradients)])
    assert time.process_time() - begun < IN_TIME
    assert found == own_search.Explained("", "", False)
    assert tried[0] == "zeroing"  # it never ends
    assert len(tried) > 1


def test_the_search_in_a_training_step_ends_and_says_so(tmp_path, monkeypatch):
    monkeypatch.setattr(own_search, "SECONDS", 4.0)  # the steps without a mistake take 0.1 to 0.5
    monkeypatch.setattr(own_search, "LONGER", 1e9)
    tried = []
    begun = time.process_time()
    found = own_search.explain(_steps(tmp_path), [_port(_steps(tmp_path))], [_noting(tried, gradients)])
    assert time.process_time() - begun < IN_TIME
    assert found == own_search.Explained("", "", True)
    assert tried == ["zeroing"]  # it took all of the time


def test_gradients_are_computed_again_after_a_search_that_ended_without_them():
    @torch.no_grad()
    def endless(x):
        while True:
            x = x * 2

    with pytest.raises(OutOfTime), Deadline(50.0, Clock()).limited():
        endless(torch.ones(3))
    assert torch.is_grad_enabled()


def test_a_backward_pass_is_ended_although_its_hook_never_ends():
    x = torch.ones(3, requires_grad=True)

    def endless(gradient):
        while True:
            gradient = gradient * 0.5 + 1

    y = x * 2
    y.register_hook(endless)
    with pytest.raises(OutOfTime), Deadline(50.0, Clock()).limited():
        y.sum().backward()
