"""xverify's FPS against a hand-written loop of the Jittor method, in alternation (``make bench``).

Each launch starts both in processes of their own; each of its rounds times one block of each, in an order that changes. Printed:
the ratio of their FPS, the mean over launches of the median over rounds, and each launch's own: launches differ more than
rounds do, by where memory happens to lie. Exit 1 when a ratio leaves 0.97 to 1.03.
"""

import math
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from xverify.weights import npz

from xverify import frameworks, probe
from xverify.process import Worker
from xverify.reference import build_arguments
from xverify.spec import find_model

# The same memory policy on both sides. By default glibc may give the memory of large activations back after every call and
# fault it in again in the next: up to 48,000 page faults and 15% of a call of torch's ResNet-50, or none, depending on what the
# process did before. That is luck of a launch, and not the loop that is measured here.
ALLOCATOR = {"MALLOC_TRIM_THRESHOLD_": "4000000000", "MALLOC_MMAP_THRESHOLD_": "4000000000"}
LAUNCHES = 3
ROUNDS = 30  # of short blocks: neighbours in time meet the same machine
BLOCK_SECONDS = 0.06
WITHIN = 0.03


class ByHand:
    def __init__(self, framework: str, model: str, batch: int, threads: int, weights: Path) -> None:
        variables = {**os.environ, **frameworks.load(framework).variables(threads, "cpu"), "PYTHONSAFEPATH": "1"}
        self.process = subprocess.Popen(
            [
                sys.executable,
                Path(__file__).with_name("handwritten.py"),
                framework,
                model,
                str(batch),
                str(threads),
                weights,
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env=variables,
        )

    def block(self, calls: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(calls, file=self.process.stdin, flush=True)
        return float(self.process.stdout.readline())


def launch(framework: str, model: str, batch: int, threads: int, space: Path) -> float:
    """log(seconds by hand / seconds by xverify): of the ratio of FPS, above zero when xverify reports more."""
    folder = find_model(model)
    worker = Worker(frameworks.load(framework), sys.executable, space, threads, "cpu", timeout=1800)
    worker.start()
    shapes = worker.request("build", **build_arguments(folder, framework, None))["shapes"]
    npz.save_file(probe.weights({name: tuple(shape) for name, shape in shapes.items()}, 0), space / "weights.npz")
    worker.request("load", path=str(space / "weights.npz"))
    npz.save_file(probe.inputs(folder.spec, batch, 0, 4), space / "inputs.npz")
    worker.request("prepare", inputs=str(space / "inputs.npz"), mode="eager")
    hand = ByHand(framework, model, batch, threads, space / "weights.npz")
    hand.block(5)
    warm = worker.request("warm", calls=5, seconds=1.0)["seconds_per_call"]
    calls = math.ceil(BLOCK_SECONDS / warm)
    hand.block(calls)
    logs = []
    for index in range(ROUNDS):
        if index % 2:
            ours, theirs = worker.request("block", case=index % 4, calls=calls)["seconds"], hand.block(calls)
        else:
            theirs, ours = hand.block(calls), worker.request("block", case=index % 4, calls=calls)["seconds"]
        logs.append(math.log(theirs / ours))
    worker.close()
    hand.process.kill()
    return statistics.median(logs)


def main() -> int:
    os.environ.update(ALLOCATOR)
    threads = int(sys.argv[1]) if len(sys.argv) > 1 else 1  # one thread varies least from block to block
    print(
        f"FPS of xverify / FPS of a hand-written loop, {LAUNCHES} launches of {ROUNDS} alternating blocks, threads: {threads}"
    )
    code = 0
    for model, batch in (("mlp", 32), ("resnet50", 8)):
        for framework in ("torch", "jittor"):
            logs = []
            for _ in range(LAUNCHES):
                with tempfile.TemporaryDirectory() as directory:
                    logs.append(launch(framework, model, batch, threads, Path(directory)))
            ratio = math.exp(statistics.mean(logs))
            inside = abs(ratio - 1) <= WITHIN
            code |= not inside
            launches = ", ".join(f"{math.exp(log):.4f}" for log in logs)
            print(f"  {model:9} {framework:7} {ratio:.4f} ({launches})  {'ok' if inside else 'outside'}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
