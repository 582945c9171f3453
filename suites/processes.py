"""Runs a tiny model while its processes fail, by the command line, and judges how each run ends.

Every run must say the right thing with the right exit code, in time, and leave neither a process nor a temporary folder.
"""

from __future__ import annotations

import fnmatch
import json
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
from process_faults import RANK, REFERENCE, SUBJECT, Fault, all_faults

ADAPTERS = Path(__file__).parents[1] / "tests" / "faulty"
LONGEST = 90.0  # seconds that one run may take
PATIENCE = 5.0  # seconds in which the processes of a parent that was killed must end
COLUMNS = ("tried", "right", "wrong")
EXIT_CODES = {"ok": (0,), "crashed": (3,), "failed": (3,), "timeout": (3,), "not-installed": (3,), "": (2, 3)}
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=4, inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 3))})
"""
# A model that calls ``at`` at every moment of its life. PLANTED and MOMENT come before it; ATTEMPT is where a marker is kept.
MODEL = """
import os, resource, shutil, signal, subprocess, sys, threading, time
import numpy as np

def at(moment):
    again = os.path.exists(MARKER)
    if HERE() and moment == (AGAIN if again and AGAIN else MOMENT):
        if AGAIN and again:
            raise ValueError("planted in " + moment)
        open(MARKER, "w").close()
        exec(PLANTED, globals())

class Weights(dict):
    def __setitem__(self, name, value):
        at("load")
        super().__setitem__(name, value)

class Net:
    calls = 0

    def __init__(self):
        at("build")
        zeros = lambda *shape: np.zeros(shape, np.float32)
        self.weights = Weights({"fc1.weight": zeros(6, 8), "fc1.bias": zeros(6), "fc2.weight": zeros(3, 6), "fc2.bias": zeros(3)})

    def __call__(self, x):
        self.calls += 1
        at({1: "first", 3: "warm", 5: "timed"}.get(self.calls, ""))
        w = self.weights
        h = np.tanh(x @ w["fc1.weight"].T + w["fc1.bias"])
        return h @ w["fc2.weight"].T + w["fc2.bias"]

def build():
    return Net()

at("module")
"""
# A model that two ranks train. PLANTED, MOMENT and HERE come before it.
MODEL_OF_RANKS = """
import os, signal, sys, time
import torch
from torch import distributed, nn

CALLS, SKIPPED, WIDER = [], set(), set()
NAMES = ("fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias")

def at(moment):
    if HERE and moment == MOMENT and os.environ.get("RANK") == "1":
        exec(PLANTED, globals())

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2 = nn.Linear(8, 6), nn.Linear(6, 3)

    def forward(self, x):
        if os.environ.get("RANK"):
            CALLS.append(x)
            at({1: "first", 4: "later"}.get(len(CALLS), ""))
        return self.fc2(self.fc1(x).tanh())

def build():
    return Net()

def parallelize(model, mesh):
    at("parallelize")
    for name in NAMES:
        def average(parameter, name=name):
            if name not in SKIPPED:
                distributed.all_reduce(torch.cat([parameter.grad] * 2) if name in WIDER else parameter.grad)
                parameter.grad /= 2
        model.get_parameter(name).register_post_accumulate_grad_hook(average)
    return model

at("module")
"""
OF_RANKS = ["--task", "train", "--ranks", "2", "--plan", "own", "--steps", "3", "--no-timing"]


@dataclass
class Ran:
    """How a run ended. rows: subject -> row of the result file. left: processes. folders: temporary ones that were left."""

    code: int
    said: str
    seconds: float
    rows: dict[str, Any]  # rows as JSON
    left: list[str]
    folders: list[str]


@dataclass
class Campaign:
    """Counts of injected faults. again: a fault that went wrong is tried once more, alone, and counts when it goes wrong again."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, fault: Fault) -> None:
        """Inject one fault, and count it."""
        ran, why = inject(fault)
        with self.lock:
            self.counts.update(("tried", "wrong" if why else "right"))
            if why:
                self.wrong.append(f"{fault.name}: {why}")
            print(
                f"{'WRONG' if why else 'right'} {ran.seconds:5.1f} s  {fault.name}{f': {why}' if why else ''}",
                flush=True,
            )


def run(only: str, part: int, jobs: int) -> tuple[Counter[str], list[str]]:
    """Inject the faults whose names fit a pattern, every ``part``-th of them. Returns the counts and what went wrong."""
    campaign = Campaign()
    chosen = [each for each in all_faults() if fnmatch.fnmatch(each.name, only)][::part]
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(campaign.take, chosen))
    return campaign.counts, campaign.wrong


def inject(fault: Fault) -> tuple[Ran, str]:
    """Run the model with a fault. Returns how it ended, and what is wrong with that; "" for nothing."""
    with tempfile.TemporaryDirectory(prefix="process-faults-") as folder:
        place = Path(folder)
        write_model(place / "port", fault, place / "marker")
        (place / "temporary").mkdir()
        ran = _run(fault, place)
        return ran, judge(fault, ran)


def write_model(folder: Path, fault: Fault, marker: Path) -> None:
    """Write a model folder whose model has the fault in the process that the fault names."""
    folder.mkdir()
    (folder / "spec.py").write_text(SPEC)
    if fault.where == RANK:
        for name in ("torch", "torch-faulty"):
            lines = [f"PLANTED = {fault.code!r}", f"MOMENT = {fault.phase!r}", f"HERE = {name != 'torch'}"]
            (folder / f"{name}.py").write_text("\n".join([*lines, MODEL_OF_RANKS]))
        return
    rebuilt = re.search(r"fails in (\w+)$", fault.name)
    for framework in ("numpy", "honest", "tumbles"):
        reference = 'os.path.basename(os.getcwd()) == "reference"'
        here = reference if fault.where == REFERENCE else str(framework != "numpy")
        settings = {
            "PLANTED": fault.code,
            "MOMENT": fault.phase,
            "MARKER": str(marker),
            "AGAIN": rebuilt[1] if rebuilt else "",
        }
        lines = [f"{name} = {value!r}" for name, value in settings.items()]
        (folder / f"{framework}.py").write_text("\n".join([*lines, f"HERE = lambda: {here}", MODEL]))


def subject(fault: Fault) -> str:
    """The subject whose process has the fault. That of ``tumbles`` is started again when its compiler crashes."""
    if fault.where == RANK:
        return "torch-faulty:eager"
    return "tumbles" if "rebuild" in fault.name else "honest"


def honest(fault: Fault) -> str:
    """The other subject of the run, which has no fault."""
    return "torch:eager" if fault.where == RANK else "numpy"


def _run(fault: Fault, place: Path) -> Ran:
    file, begun = place / "result.json", time.monotonic()
    options = ["--cases", "2", "--timeout", str(fault.timeout), "--threads", "1", *fault.options]
    options += OF_RANKS if fault.where == RANK else ["--warmup", "1", "--rerun", "4"]
    command = ["run", str(place / "port"), "--subjects", f"{honest(fault)},{subject(fault)}", *options]
    temporary = place / "temporary"
    process = subprocess.Popen(
        [sys.executable, "-m", "xverify", *command, *(() if fault.limits else ("--json", str(file)))],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=place,
        env={**os.environ, "TMPDIR": str(temporary), "XVERIFY_FRAMEWORKS": str(ADAPTERS), "COLUMNS": "200",
             "TUMBLE_FILE": str(place / "tumbled")},
        start_new_session=True,
        preexec_fn=_limiting(fault),
    )  # fmt: skip
    (place / "tumbled").touch()
    said, code = _listen(process, fault)
    deadline = time.monotonic() + PATIENCE
    while (left := _processes(place)) and fault.sent == "KILL" and time.monotonic() < deadline:
        time.sleep(0.1)
    for each in left:
        each.kill()
    folders = os.listdir(temporary)
    if fault.sent == "KILL":  # the next start removes the folder
        subprocess.run(
            [sys.executable, "-c", "from xverify.processes.space import temporary_folder\nwith temporary_folder(): pass"],
            env={**os.environ, "TMPDIR": str(temporary)}, check=True,
        )  # fmt: skip
        folders = os.listdir(temporary)
    rows = {row["subject"]: row for row in json.loads(file.read_text())["rows"]} if file.is_file() else {}
    return Ran(code, said, time.monotonic() - begun, rows, [_described(each) for each in left], folders)


def _limiting(fault: Fault) -> Callable[[], None]:
    """A function that sets the limits of the parent, and lets signals end it as they do in a terminal."""

    def limit() -> None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        for name, value in fault.limits:
            resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (value, value))

    return limit


def _listen(process: subprocess.Popen[bytes], fault: Fault) -> tuple[str, int]:
    """What the command says on standard error, and its exit code; it gets the signal of the fault at its line."""
    assert process.stderr is not None
    timer = threading.Timer(LONGEST, lambda: os.killpg(process.pid, signal.SIGKILL))
    timer.start()
    said, sent = [], not fault.sent
    try:
        # A process that outlives the command may hold this pipe, so that only its lines are waited for.
        reader = threading.Thread(target=lambda: said.extend(_lines(process, fault)), daemon=True)
        reader.start()
        code = process.wait()
        reader.join(2)
    finally:
        timer.cancel()
    return "".join(said) if sent or said else "", code


def _lines(process: subprocess.Popen[bytes], fault: Fault) -> Iterator[str]:
    assert process.stderr is not None
    sent = not fault.sent
    for raw in process.stderr:
        line = raw.decode(errors="replace")
        yield line
        if not sent and fault.line in line:
            sent = True
            process.send_signal(getattr(signal, f"SIG{fault.sent}"))
            if fault.sent == "STOP":
                time.sleep(1.5)
                process.send_signal(signal.SIGCONT)


def _processes(place: Path) -> list[psutil.Process]:
    """The processes whose environment names this folder: those that the run started, and those that they started."""
    found = []
    for each in psutil.process_iter():
        try:
            if each.pid != os.getpid() and str(place) in str(each.environ()) and each.status() != psutil.STATUS_ZOMBIE:
                found.append(each)
        except (psutil.Error, OSError):
            continue
    return found


def _described(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())[:80]
    except psutil.Error:
        return "a process"


def judge(fault: Fault, ran: Ran) -> str:
    """What is wrong with how a run ended; "" for nothing."""
    row = ran.rows.get(subject(fault), {})
    status, reason = row.get("status", ""), str(row.get("reason") or "")
    codes = {code for each in fault.statuses for code in EXIT_CODES[each]}
    if fault.sent == "KILL":
        codes, fault = {-signal.SIGKILL}, fault
    wrongs = {
        "it shows a traceback": "Traceback" in ran.said,
        f"it ended with {ran.code}, not {sorted(codes)}": ran.code not in codes,
        f"its row has status {status!r}, not {fault.statuses}: {reason}": status not in fault.statuses,
        f"its reason does not say {fault.says!r}: {reason!r}": bool(fault.says)
        and fault.says not in (reason or ran.said),
        f"its reason is not one line: {reason!r}": "\n" in reason or (status not in ("", "ok") and not reason),
        "the row of the other subject is not ok": _other_is_hurt(fault, ran),
        "it says nothing": not status and not ran.said.strip(),
        f"it left processes: {ran.left}": bool(ran.left),
        f"it left {ran.folders}": bool(ran.folders),
        f"it took {ran.seconds:.0f} s": ran.seconds > LONGEST,
    }
    found = [why for why, wrong in wrongs.items() if wrong]
    return "; ".join([*found, f"it said {_last(ran.said)!r}"]) if found else ""


def _other_is_hurt(fault: Fault, ran: Ran) -> bool:
    """Whether a fault of one subject became one of the other, whose row must be ok. A fault of the run's folder is one of both."""
    alone = fault.where in (SUBJECT, RANK) and not fault.sent and not fault.limits and "run's folder" not in fault.name
    alone = alone and "--memory" not in fault.options
    return alone and ran.rows.get(honest(fault), {}).get("status") != "ok"


def _last(said: str) -> str:
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return lines[-1][:300] if lines else ""


def main(arguments: Sequence[str]) -> int:
    """Inject the faults that a pattern names: python suites/processes.py PATTERN [PART]."""
    counts, wrong = run(arguments[0] if arguments else "*", int(arguments[1]) if len(arguments) > 1 else 1, 2)
    print("  ".join(f"{name} {counts[name]}" for name in COLUMNS))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
