"""Reads weight files: mutated ones of every format in one process, and those of hostile_weights.py by the command line."""

from __future__ import annotations

import json
import os
import pickle
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import hostile_weights
import numpy as np
from damage import CUTS, cut_copy, mutated_copy
from hostile_weights import Hostile

from xverify import weights
from xverify.errors import WeightsError

LONGEST, SLOW = 60.0, 10.0  # seconds that a command and one mutated file may take
GIB = 12  # memory of one process
SIZES = {
    "conv.weight": (4, 3, 3, 3),
    "conv.bias": (4,),
    "fc.weight": (5, 16),
    "fc.bias": (5,),
    "norm.running_var": (4,),
}


def originals(folder: Path) -> Iterator[Path]:
    """A right weight file of every format, and of every form of it."""
    import onnx
    import torch

    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in SIZES.items()}
    for suffix in (".npz", ".safetensors", ".pkl", ".pt"):
        weights.save_file(arrays, folder / f"plain{suffix}")
        yield folder / f"plain{suffix}"
    np.savez_compressed(folder / "packed.npz", **{name: np.asfortranarray(array) for name, array in arrays.items()})
    yield folder / "packed.npz"
    for protocol in (3, 4):
        (folder / f"bare-{protocol}.pkl").write_bytes(pickle.dumps(arrays, protocol))
        yield folder / f"bare-{protocol}.pkl"
    state = {name: torch.from_numpy(array) for name, array in arrays.items()}
    torch.save(state, folder / "old.pth", _use_new_zipfile_serialization=False)
    yield folder / "old.pth"
    torch.save({name: tensor.half() for name, tensor in state.items()}, folder / "half.bin")
    yield folder / "half.bin"
    tensors = [onnx.numpy_helper.from_array(array, name) for name, array in arrays.items()]
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "g", [], [], tensors)), folder / "graph.onnx")
    yield folder / "graph.onnx"


def read(path: Path) -> tuple[str, str]:
    """Read a file twice, and return (what became of it, what is wrong with that; "" for nothing)."""
    try:
        arrays = weights.load_file(path)
        again = weights.digest(weights.load_file(path))
    except WeightsError as error:
        wrong = "" if str(path) in str(error) and "\n" not in str(error) else f"its message is {str(error)!r}"
        return "refused", wrong
    except BaseException as error:
        return "crashed", f"{type(error).__name__}: {error}"
    if weights.digest(arrays) != again:
        return "read", "two readings differ"
    odd = [name for name, array in arrays.items() if array.dtype != np.float32 or not np.isfinite(array).all()]
    return "read", f"the arrays {odd} are no finite float32" if odd else ""


def mutants(path: Path, folder: Path, first: int, total: int, seed: str) -> None:
    """Read mutated copies of a file, and print a line of JSON about each. It runs in a process of its own."""
    resource.setrlimit(resource.RLIMIT_DATA, (GIB * 2**30, GIB * 2**30))
    for number in range(first, total):
        target = folder / f"file{path.suffix}"
        chance = random.Random(f"{seed} {path.name} {number}")
        if number < CUTS:
            cut_copy(path, target, number)
        else:
            mutated_copy(path, target, chance)
        begun = time.monotonic()
        print(json.dumps(["begins", number]), flush=True)
        became, wrong = read(target)
        seconds = time.monotonic() - begun
        if seconds > SLOW:
            wrong = wrong or f"it took {seconds:.0f} s"
        print(json.dumps([became, wrong]), flush=True)


def run_mutants(path: Path, total: int, seed: str) -> tuple[Counter[str], list[str]]:
    """Count what becomes of mutated copies. A file that ends the process is given to the command line, which must survive it."""
    counts, wrong, number = Counter[str](), list[str](), 0
    if read(path) != ("read", ""):
        wrong.append(f"{path.name}, which is right: {read(path)}")
    with tempfile.TemporaryDirectory(prefix="weight-mutants-") as place:
        while number < total:
            script = Path(__file__).resolve()
            done = subprocess.run(
                [sys.executable, script, str(path), place, str(number), str(total), seed],
                capture_output=True, text=True, check=False,
            )  # fmt: skip
            for line in done.stdout.splitlines():
                became, says = json.loads(line)
                if became == "begins":
                    number = says
                    continue
                counts.update(("tried", "wrong" if says else "right", became))
                wrong += [f"{path.name}, file {number}: {says}"] if says else []
            if done.returncode == 0:
                break
            answer = spring(Hostile(Path(place) / f"file{path.suffix}", path.suffix), Path(place))
            counts.update(("tried", "wrong" if answer else "right", "ended its process"))
            wrong += [f"{path.name}, file {number}: {answer}"] if answer else []
            number += 1
    return counts, wrong


def spring(hostile: Hostile, folder: Path) -> str:
    """Give one file to the command line. Returns what is wrong with the answer; "" for nothing."""
    temporary = Path(tempfile.mkdtemp(dir=folder))
    begun = time.monotonic()
    try:
        done = subprocess.run(
            [sys.executable, "-m", "xverify", "weights", "digest", str(hostile.path), *hostile.options],
            capture_output=True, text=True, timeout=LONGEST, check=False, cwd=temporary,
            env={**os.environ, "TMPDIR": str(temporary), "COLUMNS": "200"},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer within {LONGEST:g} s"
    said, lines = done.stderr, [line for line in done.stderr.splitlines() if line.strip()]
    wrongs: dict[str, Any] = {
        f"it ended with {done.returncode}: {said[-300:]!r}": done.returncode != (2 if hostile.says else 0),
        "it shows a traceback": "Traceback" in said,
        f"{len(lines)} lines instead of one: {lines[:3]}": hostile.says and len(lines) != 1,
        f"it does not say {hostile.says!r}: {said[-300:]!r}": hostile.says not in said,
        f"it left {os.listdir(temporary)}": os.listdir(temporary),
        f"it took {time.monotonic() - begun:.0f} s": time.monotonic() - begun > LONGEST / 2,
    }
    return "; ".join(why for why, wrong in wrongs.items() if wrong)


def run_hostile(folder: Path, part: int, jobs: int) -> tuple[Counter[str], list[str]]:
    """Give every ``part``-th hostile file to the command line."""
    made, trap = folder / "hostile", folder / "trap"
    made.mkdir()
    trap.mkdir()
    chosen = list(hostile_weights.make(made, trap))[::part]
    counts, wrong = Counter[str](), list[str]()
    with ThreadPoolExecutor(jobs) as pool:
        for hostile, answer in zip(chosen, pool.map(lambda each: spring(each, folder), chosen)):
            counts.update(("tried", "wrong" if answer else "right"))
            counts.update(("refused",) if hostile.says else ("read",))
            wrong += [f"{hostile.path.name}: {answer}"] if answer else []
    if os.listdir(trap):
        counts.update(("wrong",))
        wrong.append(f"files were executed: they wrote {os.listdir(trap)}")
    return counts, wrong


def run(files: int, part: int, jobs: int, seed: str) -> tuple[dict[str, Counter[str]], list[str]]:
    """Both sorts of files: name -> counts, and what went wrong. files: number of mutated ones. part: every so many hostile ones."""
    with tempfile.TemporaryDirectory(prefix="weight-files-") as place:
        folder = Path(place)
        made = list(originals(folder))
        shares = [files // len(made) + (index < files % len(made)) for index in range(len(made))]
        with ThreadPoolExecutor(jobs) as pool:
            found = list(pool.map(lambda each: run_mutants(each[0], each[1], seed), zip(made, shares)))
        rows = {path.name: counts for path, (counts, _) in zip(made, found)}
        wrong = [why for _, whys in found for why in whys]
        rows["made to harm"], more = run_hostile(folder, part, jobs)
        return rows, wrong + more


if __name__ == "__main__":
    mutants(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
