"""How much memory and time a run of a large model takes: a GPT of 10 M, 100 M and 1.3 G parameters on PyTorch and ONNX Runtime.

The model is that of models/gpt-tiny with other sizes, random weights, a batch of one sequence and 32 tokens. Every half second the
memory of each process of the run is read. It is counted without the pages of files, which the system can free at any time, but with
them in the parent. The exit status is 1 when a limit is not kept.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

MIB = 2**20
SHAPES = {  # width, blocks, vocabulary
    "10M": (320, 6, 8_000),
    "100M": (768, 9, 50_257),
    "1.3G": (2048, 24, 50_257),
}
MOST_IN_PARENT = 500  # MiB, resident, of which pages of files are a part
MOST_IN_ALL = 24 * 1024  # MiB
MOST_GROWTH = 1.5  # of the seconds of judging per parameter, from 100M to 1.3G
INTERVAL = 0.5  # seconds
SUBJECTS = {"subject-0": "torch:eager", "subject-1": "onnxruntime"}  # name of the worker's folder -> subject
TITLES = ("parameters", "verdict", "seconds", "ns a parameter", "MiB: parent", "reference", *SUBJECTS.values(), "all")

SPEC = """\
from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    description="decoder-only transformer (GPT): width {width}, {blocks} blocks, {vocabulary} tokens",
    task="language-model",
    item="sequence",
    batch=1,
    inputs={{"tokens": TensorSpec(("N", 32), dtype="int64", low=0, high={vocabulary})}},
    outputs={{"logits": TensorSpec(("N", 32, {vocabulary}))}},
    options={{"vocabulary": {vocabulary}, "dim": {width}, "depth": {blocks}, "heads": {heads}, "length": 32}},
)
"""


def parameters(size: str) -> int:
    """The number of parameters of a size."""
    width, blocks, vocabulary = SHAPES[size]
    return (vocabulary + 32 + 2) * width + blocks * (12 * width**2 + 13 * width)


def write_folder(size: str, folder: Path) -> Path:
    """Write the model folder of a size."""
    width, blocks, vocabulary = SHAPES[size]
    folder.mkdir(parents=True)
    heads = width // 64
    (folder / "spec.py").write_text(SPEC.format(width=width, blocks=blocks, vocabulary=vocabulary, heads=heads))
    source = Path(__file__).parents[1] / "models/gpt-tiny/torch.py"
    shutil.copy(source, folder / "torch.py")
    return folder


@dataclass
class Peaks:
    """The largest memory, MiB, by the name of the process: "parent", "reference", those of SUBJECTS, and "total" of all at once.

    resident: of the parent with the pages of files.
    """

    own: dict[str, float] = field(default_factory=dict)
    resident: float = 0.0

    def watch(self, run: psutil.Process, ended: Callable[[], bool], interval: float = INTERVAL) -> None:
        """Read the memory of a process and of all that it started, until it ends. interval: between two readings, seconds."""
        while not ended():
            total = 0.0
            for process in (run, *run.children(recursive=True)):
                with suppress(psutil.Error, OSError):  # it has ended
                    memory, name = process.memory_info(), Path(process.cwd()).name
                    if process.pid == run.pid:
                        name, self.resident = "parent", max(self.resident, memory.rss / MIB)
                    own = (memory.rss - memory.shared) / MIB
                    total += own
                    self.own[name] = max(self.own.get(name, 0.0), own)
            self.own["total"] = max(self.own.get("total", 0.0), total)
            time.sleep(interval)


def measured(size: str, folder: Path) -> tuple[Peaks, dict[str, object]]:
    """The peaks of a run of this size, and its result file."""
    result = folder / "result.json"
    command = [sys.executable, "-m", "xverify", "run", str(write_folder(size, folder / "model")), "--json", str(result)]
    command += ["--subjects", ",".join(SUBJECTS.values()), "--no-timing", "--cases", "1", "--quiet"]
    peaks = Peaks()
    with psutil.Popen(command, stdout=subprocess.DEVNULL) as run:
        peaks.watch(run, lambda: run.poll() is not None)
    if not result.exists():
        raise SystemExit(f"{size}: the run ended with {run.returncode} and without a result")
    return peaks, json.loads(result.read_text())


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", default=",".join(SHAPES), help="some of %(default)s")
    sizes = parser.parse_args().sizes.split(",")
    print("".join(f"{title:>17}" for title in TITLES), flush=True)
    costs, good = {}, True
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            begun = time.perf_counter()
            peaks, result = measured(size, Path(folder))
            seconds = time.perf_counter() - begun
        costs[size] = seconds / parameters(size)
        own = peaks.own
        parts = [own.get(name, 0.0) for name in ("reference", *SUBJECTS, "total")]
        good &= result["verdict"] == "PASS" and peaks.resident <= MOST_IN_PARENT and own["total"] <= MOST_IN_ALL
        numbers = (seconds, 1e9 * costs[size], peaks.resident, *parts)
        cells = (f"{parameters(size):,}", result["verdict"], *(f"{number:,.0f}" for number in numbers))
        print("".join(f"{cell:>17}" for cell in cells), flush=True)
    if {"100M", "1.3G"} <= set(costs):
        growth = costs["1.3G"] / costs["100M"]
        good &= growth <= MOST_GROWTH
        print(f"seconds a parameter, 1.3G beside 100M: {growth:.2f} (at most {MOST_GROWTH})")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
