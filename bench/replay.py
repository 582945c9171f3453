"""Measures the cost of a replay: its time in float64 forward passes, and its memory beside that of the models.

The replay and the forward pass both have the model's default batch, as in a run with ONNX Runtime. Other frameworks are judged on
the first JUDGED_ITEMS items of a batch, which costs less.

python bench/replay.py [MODEL]          default: resnet50
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch

from xverify.explain.replay import replay_forward
from xverify.float64 import stepping
from xverify.float64.structures import as_float64
from xverify.framework import capture
from xverify.framework.adapter import Source
from xverify.framework.discovery import load
from xverify.replay.tensors import Capture
from xverify.workload import probe
from xverify.workload.spec import find_model

THREADS, REPEATS = 1, 3
MIB = 1024 * 1024


def memory(name: str) -> float:
    """A value in /proc/self/status, MiB. name: the name of its line."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name + ":")]
    return int(line.split()[1]) / 1024


def reset_peak() -> float:
    """Reset the peak of resident memory (VmHWM). Returns the present resident memory, MiB."""
    Path("/proc/self/clear_refs").write_text("5")
    return memory("VmRSS")


def main(model: str = "resnet50") -> int:
    stepping.return_freed_memory()
    folder = find_model(model)
    batch = folder.spec.items
    adapter = load("torch")(THREADS, "cpu")
    source, options = Source(folder.code, file="torch"), dict(folder.spec.options)
    float32_model, port = adapter.build(source, options), adapter.build(source, options)
    float64_model = adapter.build(source, options, float64=True)
    weights = probe.weights({name: array.shape for name, array in adapter.save_weights(float32_model).items()}, seed=0)
    for each in (float32_model, port, float64_model):
        adapter.load_weights(each, weights)
    arrays = probe.inputs(folder.spec, batch, seed=0, cases=1)
    x = tuple(torch.from_numpy(array) for array in arrays.values())
    whole = [as_float64(tensor) for tensor in x]
    with tempfile.TemporaryDirectory() as directory:
        recorder = capture.Recorder(Path(directory), lambda v: v.numpy() if isinstance(v, torch.Tensor) else None)
        layers = {name: [layer] for name, layer in stepping.leaves(port).items()}
        with torch.no_grad(), capture.recording(layers, "forward", recorder):
            port(*x)
        captured = Capture(Path(directory), records={(r.name, r.call): r for r in recorder.records})
        sizes = sorted(
            (
                sum((Path(directory) / file).stat().st_size for file in {*r.inputs, *r.outputs})
                for r in recorder.records
            ),
            reverse=True,
        )
        seconds: dict[str, list[float]] = {"forward": [], "replay": []}
        peaks: list[float] = []
        for _ in range(REPEATS):
            begun = time.perf_counter()
            with torch.no_grad():
                float64_model(*whole)
            seconds["forward"].append(time.perf_counter() - begun)
            models = stepping.Models(float64_model, float32_model)
            resident = reset_peak()
            begun = time.perf_counter()
            replay_forward(models, captured, x, dict.fromkeys(folder.spec.outputs))
            seconds["replay"].append(time.perf_counter() - begun)
            peaks.append(memory("VmHWM") - resident)
            models.release()
    ratios = [b / a for a, b in zip(seconds["forward"], seconds["replay"])]
    room = 2 * 2 * sum(sizes[:2]) / MIB  # in float64: twice their size in float32
    print(f"replay of {model}, batch {batch}, threads: {THREADS}")
    print(f"  {statistics.median(ratios):.2f} float64 forward passes ({', '.join(f'{ratio:.2f}' for ratio in ratios)})")
    print(
        f"  {max(peaks):.0f} MiB at its peak beside the models; twice the two largest layers in float64: {room:.0f} MiB"
    )
    return 0 if statistics.median(ratios) <= 4 and max(peaks) <= room else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
