"""How near the memory that a run says beforehand comes to what it takes, for weights and activations in different proportions.

python bench/memory.py [CASE ...]          default: all of CASES

The memory of all processes is read as in large_models.py. The exit status is 1 when an estimate is not within LEAST and MOST of the
measured peak.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

import psutil
from large_models import MIB, Peaks, write_folder

import xverify
from xverify.engine import memory

LEAST, MOST = 0.7, 1.5  # estimate / measured
INTERVAL = 0.05  # seconds; the operations of a small model are short
INFERENCE, TRAINING = ["torch:eager", "onnxruntime"], ["torch:eager", "torch:trace"]
CASES: dict[str, tuple[str, dict[str, Any]]] = {  # name -> model, options
    "resnet50": ("resnet50", {"subjects": INFERENCE}),
    "vgg16, batch 16": ("vgg16", {"subjects": INFERENCE, "batch": 16}),
    "gpt 100M": ("100M", {"subjects": INFERENCE}),
    "resnet18 training, batch 64": ("resnet18", {"subjects": TRAINING, "task": "train", "batch": 64}),
    # Its model is small: Framework.overhead is the peak of each subject, memory.REFERENCE that of the parent and the reference.
    "mlp, every framework": ("mlp", {}),
}


def measured(model: str, options: dict[str, Any]) -> tuple[float, float, dict[str, float]]:
    """The estimate of a run and the peak of all its processes together, and the peak of each process by its name, MiB."""
    said, peaks, ended = list[int](), Peaks(), threading.Event()
    plan = memory.plan

    def planned(*args: Any, **kwargs: Any) -> memory.Plan:
        found = plan(*args, **kwargs)
        said.append(found.needed)
        return found

    memory.plan = planned
    watching = threading.Thread(target=peaks.watch, args=(psutil.Process(), ended.is_set, INTERVAL))
    watching.start()
    try:
        result = xverify.run(model, no_timing=True, **options)
    finally:
        ended.set()
        watching.join()
        memory.plan = plan
    names = {f"subject-{index}": row.subject for index, row in enumerate(result.rows)}
    own = {names.get(name, name): peak for name, peak in peaks.own.items() if name in ("parent", "reference", *names)}
    return said[0] / MIB, peaks.own["total"], own


def main(*names: str) -> int:
    print(f"{'case':<30}{'estimate, MiB':>15}{'measured':>10}{'ratio':>7}  of which")
    good = True
    for name in names or CASES:
        model, options = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            if model == "100M":
                model = str(write_folder(model, Path(folder) / "model"))
            estimate, total, own = measured(model, options)
        good &= LEAST <= estimate / total <= MOST
        parts = ", ".join(f"{process} {peak:,.0f}" for process, peak in own.items())
        print(f"{name:<30}{estimate:>15,.0f}{total:>10,.0f}{estimate / total:>7.2f}  {parts}", flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
