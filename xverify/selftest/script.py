"""A plain script that times torch's forward pass. It has nothing of the harness: no worker, no messages, no rounds.

When it is warm it prints a line. Then it makes one call for each line that it reads, and prints its seconds. At the end of its
input it prints the page faults a call.

Usage: python -m xverify.selftest.script FILE BATCH SIZE CORES

FILE is a torch model file with a function ``build``, for images of SIZE x SIZE; CORES are the cores to run on, separated by
commas, or "" for all.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time

WARM_CALLS, WARM_SECONDS = 5, 1.5


def faults() -> int:
    """The page faults of this process so far, without those that read a disk."""
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt


def main() -> None:
    file, batch, size, cores = sys.argv[1:]
    if cores:
        os.sched_setaffinity(0, [int(core) for core in cores.split(",")])
    import torch

    from ..frameworks.torch.torchvision import declare_torchvision_ops

    torch.set_num_threads(1)
    declare_torchvision_ops(torch)
    spec = importlib.util.spec_from_file_location("model", file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.build().eval()
    x = torch.rand(int(batch), 3, int(size), int(size))
    with torch.inference_mode():
        warmed, begun = 0, time.perf_counter()
        while time.perf_counter() - begun < WARM_SECONDS or warmed < WARM_CALLS:
            model(x)
            warmed += 1
        print("warm", flush=True)
        calls, before = 0, faults()
        for _ in sys.stdin:
            start = time.perf_counter()
            y = model(x)  # noqa: F841  # kept, as in user code
            seconds = time.perf_counter() - start
            print(seconds, flush=True)
            calls += 1
    print((faults() - before) / max(calls, 1))


if __name__ == "__main__":
    main()
