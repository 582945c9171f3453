"""A framework's forward pass, or its training step, timed by the harness, and by a loop written by hand, in pairs in one process.

python -m xverify.selftest.byhand FRAMEWORK MODEL THREADS FOLDER TASK CORES: prints {"ours": [...], "by_hand": [...]}, seconds a
call of blocks in pairs. FOLDER is of the run's own, for weights and inputs; CORES: those to run on, or "". One process, one
callable of the framework (a module, a function, a session) and one input for both: in two processes memory lies differently, and
that is more than what is measured here.
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

from ..reference.build import build_question
from ..weights import npz
from ..worker.messages import Block, Load, Prepare, Start, Warm
from ..worker.messages_training import PrepareTraining
from ..worker.session import Session
from ..workload import datasets as data
from ..workload import probe
from ..workload.optimizers import optimizer
from ..workload.spec import find_model

# A short call shows what a call costs beside its work. Long training steps tell nothing of it: the harness came out 0.6 to 2.6%
# faster than the loop by hand on steps of convolutional networks in some processes, and equal in others; why is not known.
CASES = (("mlp", "forward"), ("resnet50", "forward"), ("mlp", "train"))
ITEMS = {"forward": 1, "train": 32}
LEAST_PAIRS, SECONDS = 30, 10.0  # as many pairs as fit into this time
BLOCK = 0.005  # seconds: what the machine does besides changes slowly, and many short pairs see through it
By = Callable[[int], float]  # times so many calls, in seconds


def torch(call: Any, x: Any) -> By:
    import torch

    def loop(rerun: int) -> float:
        with torch.inference_mode():
            start = time.perf_counter()
            for _ in range(rerun):
                y = call(x)  # noqa: F841  # kept, as a user would
            return time.perf_counter() - start

    return loop


def jittor(call: Any, x: Any) -> By:
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


def tensorflow(call: Any, x: Any) -> By:
    def loop(rerun: int) -> float:
        start = time.perf_counter()
        for _ in range(rerun):
            y = call(x)  # noqa: F841
        return time.perf_counter() - start

    return loop


def onnxruntime(call: Any, x: Any) -> By:
    session = inspect.getclosurevars(call).nonlocals["session"]  # another session would have another place in memory
    feed = {session.get_inputs()[0].name: x}

    def loop(rerun: int) -> float:
        start = time.perf_counter()
        for _ in range(rerun):
            y = session.run(None, feed)  # noqa: F841
        return time.perf_counter() - start

    return loop


def torch_training(learner: Any, *batch: Any) -> By:
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


def jittor_training(learner: Any, *batch: Any) -> By:
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


def tensorflow_training(learner: Any, *batch: Any) -> By:
    step = learner.step  # a tf.function: another one would be another graph

    def loop(rerun: int) -> float:
        start = time.perf_counter()
        for _ in range(rerun):
            loss = step(*batch)  # noqa: F841
        return time.perf_counter() - start

    return loop


LOOPS = {
    "torch": (torch, "eager"),
    "jittor": (jittor, "eager"),
    "tensorflow": (tensorflow, "graph"),
    "onnxruntime": (onnxruntime, "all"),
}
TRAINING = {
    "torch": (torch_training, "eager"),
    "jittor": (jittor_training, "eager"),
    "tensorflow": (tensorflow_training, "graph"),
}


def measure(name: str, model: str, threads: int, space: Path, task: str) -> dict[str, list[float]]:
    """Seconds a call of each block, in pairs."""
    write, mode = (TRAINING if task == "train" else LOOPS)[name]
    session, folder = Session(), find_model(model)

    session.ask(Start(name, threads, "cpu"))
    onnx = space / "model.onnx"
    built = session.ask(build_question(folder, name, onnx if onnx.exists() else None))
    npz.save_file(probe.weights(built.shapes, 0), space / "weights.npz")
    session.ask(Load(str(space / "weights.npz")))
    if task == "train":
        npz.save_file(data.synthetic(folder.spec, ITEMS[task], seed=0, cases=1).arrays, space / "inputs.npz")
        session.ask(PrepareTraining(str(space / "inputs.npz"), mode, optimizer("sgd"), match=False))
        loop = write(session.training.learner, *session.state.cases[0])
    else:
        npz.save_file(probe.inputs(folder.spec, ITEMS[task], seed=0, cases=1), space / "inputs.npz")
        session.ask(Prepare(str(space / "inputs.npz"), mode))
        loop = write(session.state.call, session.state.cases[0][0])
    per_call = session.ask(Warm(calls=5, seconds=0.5)).seconds_per_call
    calls = max(1, round(BLOCK / per_call))
    loop(calls)

    def ours() -> float:
        return session.ask(Block(0, calls)).seconds / calls

    found: dict[str, list[float]] = {"ours": [], "by_hand": []}
    begun, drawn = time.perf_counter(), random.Random(0)
    while len(found["ours"]) < LEAST_PAIRS or time.perf_counter() - begun < SECONDS:
        # By turns, what comes back in a process from time to time, as its garbage collection, could always meet the same one.
        if drawn.random() < 0.5:
            found["ours"].append(ours())
            found["by_hand"].append(loop(calls) / calls)
        else:
            found["by_hand"].append(loop(calls) / calls)
            found["ours"].append(ours())
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
