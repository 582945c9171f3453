"""Times a framework's forward pass or training step by the harness and by a loop written by hand, in pairs, in one process.

Usage: python -m xverify.selftest.byhand FRAMEWORK MODEL THREADS FOLDER TASK CORES

It prints {"ours": [...], "by_hand": [...]}: seconds per call of each block, in pairs. FOLDER is an empty folder for weights and
inputs, or one with the reference's export; CORES are the cores to run on, separated by commas, or "" for all.

Both use the same callable of the framework (a module, a function, a session) and the same input in the same process. In two
processes the arrays would lie at different places in memory, which makes a larger difference than the one to be measured.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from ..messages import Block, Load, Prepare, Start, Warm
from ..messages.own_step import PrepareOwnStep
from ..messages.training import PrepareTraining
from ..reference.build import build_question
from ..weights import npz
from ..worker.session import Session
from ..workload import datasets as data
from ..workload import probe
from ..workload.optimizers import optimizer
from ..workload.recipe import Recipe
from ..workload.spec import find_model

# Short calls show the overhead of a call. Long training steps do not: on steps of convolutional networks the harness was 0.6% to
# 2.6% faster than the loop by hand in some processes, and as fast in others, for an unknown reason.
CASES = (("mlp", "forward"), ("resnet50", "forward"), ("mlp", "train"), ("mlp", "recipe"), ("mlp", "own"))
ITEMS = {"forward": 1, "train": 32, "recipe": 32, "own": 32}
FOLDERS = {"own": Path(__file__).parent / "own"}  # of the model of a task, where the zoo has no such one
PARTS, LIMIT = 2, 1.0  # of the task "recipe": micro-batches of a step, and the largest norm of all gradients
OPTIMIZERS = {
    "train": optimizer("sgd"),
    "recipe": optimizer("adamw", recipe=Recipe(clip_norm=LIMIT, accumulate=PARTS)),
    "own": optimizer("adamw"),  # the model file has its own, and this one is not used
}
LEAST_PAIRS, SECONDS = 30, 10.0  # as many pairs as fit into this time, and at least LEAST_PAIRS
# Seconds. Other load of the machine changes slowly, so many short pairs cancel it. What a block adds once, some 20 µs, is a
# thousandth of it; blocks of a run are at least three times as long.
BLOCK = 0.02
# Makes this number of calls, and returns the seconds they take.
Loop = Callable[[int], float]


def plain(call: Any, *inputs: Any) -> Loop:
    """Calls one after another, as of a tf.function."""

    def loop(rerun: int) -> float:
        start = time.perf_counter()
        for _ in range(rerun):
            y = call(*inputs)  # noqa: F841
        return time.perf_counter() - start

    return loop


def torch(call: Any, x: Any) -> Loop:
    """torch in eager mode."""
    import torch

    return torch.inference_mode()(plain(call, x))


def jittor(call: Any, x: Any) -> Loop:
    """Jittor in eager mode."""
    import jittor

    def loop(rerun: int) -> float:
        with jittor.no_grad():
            jittor.sync_all(True)
            start = time.perf_counter()
            for _ in range(rerun):
                y = call(x)
                y.sync()
            jittor.sync_all(True)
            return time.perf_counter() - start

    return loop


def onnxruntime(call: Any, x: Any) -> Loop:
    """A session of ONNX Runtime."""
    session = inspect.getclosurevars(call).nonlocals["session"]  # a second session would lie at another place in memory
    feed = {session.get_inputs()[0].name: x}

    def loop(rerun: int) -> float:
        start = time.perf_counter()
        for _ in range(rerun):
            y = session.run(None, feed)  # noqa: F841
        return time.perf_counter() - start

    return loop


def torch_training(learner: Any, *batch: Any) -> Loop:
    """Training steps with torch."""
    import torch

    forward, optimizer, (x, target) = learner.forward, learner.optim, batch

    def loop(rerun: int) -> float:
        start = time.perf_counter()
        for _ in range(rerun):
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(forward(x), target)
            loss.backward()
            optimizer.step()
        return time.perf_counter() - start

    return loop


def jittor_training(learner: Any, *batch: Any) -> Loop:
    """Training steps with Jittor."""
    import jittor

    model, optimizer, (x, target) = learner.model, learner.optim, batch

    def loop(rerun: int) -> float:
        jittor.sync_all(True)
        start = time.perf_counter()
        for _ in range(rerun):
            loss = jittor.nn.cross_entropy_loss(model(x), target)
            optimizer.step(loss)
            jittor.sync_all()
        jittor.sync_all(True)
        return time.perf_counter() - start

    return loop


def tensorflow_training(learner: Any, *batch: Any) -> Loop:
    """Training steps with TensorFlow."""
    return plain(learner.step, *batch)  # a tf.function; a second one would make a second graph


def torch_recipe(learner: Any, *batch: Any) -> Loop:
    """Training steps with torch, with micro-batches and clipping."""
    import torch

    forward, optimizer, (x, target) = learner.forward, learner.optim, batch
    parameters, items = list(learner.model.parameters()), len(x) // PARTS

    def loop(rerun: int) -> float:
        start = time.perf_counter()
        for _ in range(rerun):
            optimizer.zero_grad()
            total = 0.0
            for first in range(0, len(x), items):
                output = forward(x[first : first + items])
                loss = torch.nn.functional.cross_entropy(output, target[first : first + items])
                (loss / PARTS).backward()
                total = total + loss.detach()
            torch.nn.utils.clip_grad_norm_(parameters, LIMIT)
            optimizer.step()
            total = total / PARTS
        return time.perf_counter() - start

    return loop


def jittor_recipe(learner: Any, *batch: Any) -> Loop:
    """Training steps with Jittor, with micro-batches and clipping."""
    import jittor

    model, optimizer, (x, target) = learner.model, learner.optim, batch
    items = len(x) // PARTS

    def loop(rerun: int) -> float:
        jittor.sync_all(True)
        start = time.perf_counter()
        for _ in range(rerun):
            total = 0.0
            for first in range(0, len(x), items):
                output = model(x[first : first + items])
                loss = jittor.nn.cross_entropy_loss(output, target[first : first + items]) / PARTS
                optimizer.backward(loss)
                total = total + loss
            optimizer.clip_grad_norm(LIMIT)
            optimizer.step()
            jittor.sync_all()
        jittor.sync_all(True)
        return time.perf_counter() - start

    return loop


def torch_own(call: Any, batch: Any) -> Loop:
    """Training steps that a model file makes itself, with torch."""
    return plain(call.function, call.model, call.state, batch)


def jittor_own(call: Any, batch: Any) -> Loop:
    """Training steps that a model file makes itself, with Jittor."""
    import jittor

    bound = inspect.getclosurevars(call).nonlocals["step"]  # with the same model and state
    step, model, state = bound.function, bound.model, bound.state

    def loop(rerun: int) -> float:
        jittor.sync_all(True)
        start = time.perf_counter()
        for _ in range(rerun):
            losses = step(model, state, batch)  # noqa: F841, Jittor does not compute losses that nobody keeps
            jittor.sync_all()
        jittor.sync_all(True)
        return time.perf_counter() - start

    return loop


# Framework -> the mode that its loops are written for.
MODES = {"torch": "eager", "jittor": "eager", "tensorflow": "graph", "onnxruntime": "all"}
# Task -> framework -> the function that makes the loop.
BY_TASK: dict[str, dict[str, Callable[..., Loop]]] = {
    "forward": {"torch": torch, "jittor": jittor, "tensorflow": plain, "onnxruntime": onnxruntime},
    "train": {"torch": torch_training, "jittor": jittor_training, "tensorflow": tensorflow_training},
    "recipe": {"torch": torch_recipe, "jittor": jittor_recipe, "tensorflow": tensorflow_training},
    "own": {"torch": torch_own, "jittor": jittor_own, "tensorflow": plain},
}


def measure(name: str, model: str, threads: int, space: Path, task: str) -> dict[str, list[float]]:
    """Seconds per call of each block, in pairs."""
    write, mode = BY_TASK[task][name], MODES[name]
    session, folder = Session(), find_model(FOLDERS.get(task, model))

    session.ask(Start(name, threads, "cpu"))
    onnx = space / "model.onnx"
    built = session.ask(build_question(folder, name, onnx if onnx.exists() else None, trains=task in FOLDERS))
    npz.save_file(probe.weights(built.shapes, 0), space / "weights.npz")
    session.ask(Load(str(space / "weights.npz")))
    if task in OPTIMIZERS:
        npz.save_file(data.synthetic(folder.spec, ITEMS[task], seed=0, cases=1).arrays, space / "inputs.npz")
        question = PrepareTraining(str(space / "inputs.npz"), mode, OPTIMIZERS[task], match=False)
        session.ask(PrepareOwnStep(question) if task in FOLDERS else question)
        call = session.state.call if task in FOLDERS else session.training.learner
        loop = write(call, *session.state.cases[0])
    else:
        npz.save_file(probe.inputs(folder.spec, ITEMS[task], seed=0, cases=1), space / "inputs.npz")
        session.ask(Prepare(str(space / "inputs.npz"), mode))
        loop = write(session.state.call, session.state.cases[0][0])
    per_call = session.ask(Warm(calls=5, seconds=0.5)).seconds_per_call
    calls = max(1, round(BLOCK / per_call))
    loop(calls)

    def ours() -> float:
        return session.ask(Block(0, calls)).seconds / calls

    return _in_pairs(ours, lambda: loop(calls) / calls)


def _in_pairs(ours: Callable[[], float], by_hand: Callable[[], float]) -> dict[str, list[float]]:
    """Time both in pairs of blocks. The order within a pair is random.

    With alternating orders, a periodic event of the process such as garbage collection could always disturb the same one.
    """
    timers = {"ours": ours, "by_hand": by_hand}
    found: dict[str, list[float]] = {name: [] for name in timers}
    begun, generator = time.perf_counter(), random.Random(0)
    while len(found["ours"]) < LEAST_PAIRS or time.perf_counter() - begun < SECONDS:
        for name in timers if generator.random() < 0.5 else reversed(timers):
            found[name].append(timers[name]())
    return found


def main() -> None:
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    name, model, threads, space, task, cores = sys.argv[1:]
    if cores:
        psutil.Process().cpu_affinity([int(core) for core in cores.split(",")])
    replies.write(json.dumps(measure(name, model, int(threads), Path(space), task)))
    replies.close()
    os._exit(0)


if __name__ == "__main__":
    main()
