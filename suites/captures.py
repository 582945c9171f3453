"""Records the torch ports of tests/ports without xverify, judges the captures, and compares the verdicts with those of live runs.

python suites/captures.py [--only LIST] [--clean]

Each port runs live, which keeps its weights and inputs. Another process, in which xverify cannot be imported, then records the
port with the same weights and inputs, and `xverify judge` judges the file. Without --clean, the first fault of each port is
planted, too. The verdict, the relative error and the verdict on each layer must be those of the live run. Otherwise the exit code
is 1.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ports import Fault, Port, ports

from xverify import run
from xverify.engine.captures import judge
from xverify.errors import XverifyError
from xverify.receipts.reading import read
from xverify.results.records import Row
from xverify.workload.spec import find_model

RECORDER = Path(__file__).parents[1] / "xverify" / "frameworks" / "capture" / "xverify_recorder.py"
# What is appended to the file of a port: it keeps the weights that the live run loads.
KEEP = """

def build(*, _build=build, **options):
    model = _build(**options)
    names = set(model.state_dict())
    def keep(module, args):
        import torch
        if set(module.state_dict()) == names:  # a replay may fold what computes a weight
            torch.save(module.state_dict(), {path!r})
    model.register_forward_pre_hook(keep)
    return model
"""
# The arguments are: file of the port, its weights, its inputs, the capture, and the names of its inputs.
RECORD = """
import importlib.util, sys
class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "xverify":
            raise ImportError("xverify is not here")
sys.meta_path.insert(0, Blocked())
import numpy as np, torch, xverify_recorder
# transformers imports torchvision, whose compiled operators may need another build of torch.
library = torch.library.Library("torchvision", "DEF")
for name in ("nms", "qnms"):
    library.define(name + "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
file, weights, inputs, capture, *names = sys.argv[1:]
spec = importlib.util.spec_from_file_location("port", file)
port = importlib.util.module_from_spec(spec)
spec.loader.exec_module(port)
model = port.build(**OPTIONS).eval()
model.load_state_dict(torch.load(weights))
arrays = np.load(inputs)
with xverify_recorder.Recording(capture, model) as recording:
    for case in range(len(arrays.files) // len(names)):
        recording.call(*(arrays[f"{case}/{name}"] for name in names))
"""


def compare(port: Port, name: str, fault: Fault | None, space: Path) -> str:
    """Run a port live, and from its capture. Returns how the verdicts differ; "" when they are the same. Prints the verdict."""
    live_folder, folder = space / "live", space / "recorded"
    for each in (live_folder, folder):
        shutil.copytree(port.folder, each)
        if fault is not None:
            fault.plant(each)
    file = live_folder / f"{name}.py"
    file.write_text(file.read_text() + KEEP.format(path=str(space / "weights.pt")))
    live = run(live_folder, [f"{name}:eager"], receipt=space / "receipt", no_timing=True, cases=2)
    kept = read(space / "receipt").tasks["forward"]
    spec = find_model(folder).spec
    capture = space / f"{port.folder.name}.safetensors"
    shutil.copy(RECORDER, space / RECORDER.name)
    script = space / "record.py"
    script.write_text(RECORD.replace("OPTIONS", repr(dict(spec.options))))
    command = [sys.executable, script, folder / f"{name}.py", space / "weights.pt", kept.inputs, capture, *spec.inputs]
    done = subprocess.run([str(each) for each in command], capture_output=True, text=True, check=False, cwd=space)
    if done.returncode:
        return f"it could not be recorded: {done.stderr.strip().splitlines()[-1]}"
    judged = judge([capture], str(folder), names=name, weights=str(kept.weights))
    [one], [other] = live.rows, judged.rows
    print(f"  {name}{f' ({fault.old} -> {fault.new})' if fault else ''}: {_verdict(one)}", flush=True)
    return "" if _shown(one) == _shown(other) else f"live {_shown(one)}; from the capture {_shown(other)}"


def _verdict(row: Row) -> str:
    return str(row.error.verdict) if row.error else f"{row.status}: {row.reason}"


def _shown(row: Row) -> tuple[object, ...]:
    """What must be the same: the verdict, the relative error, and the verdicts on the layers."""
    error = row.error
    if error is None:
        return (row.status, row.reason)
    layers = () if error.layers is None else tuple((each.layer, each.verdict) for each in error.layers.layers)
    return str(error.verdict), f"{error.rel_rms or 0.0:.2g}", layers


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", help="ports, separated by commas (default: all of them)")
    parser.add_argument("--clean", action="store_true", help="plant no faults")
    asked = parser.parse_args()
    begun, only = time.monotonic(), asked.only.split(",") if asked.only else None
    wrong: list[str] = []
    rows, seen = 0, set[str]()
    for port in ports():
        if port.lacks() or (only is not None and port.folder.name not in only):
            continue
        for name in ("torch", *(each for each in port.files if each.startswith("torch-"))):
            faults = [each for each in port.faults if each.port == name and each.task == "forward" and not each.hidden]
            for fault in [None, *([] if asked.clean else faults[:1])]:
                with tempfile.TemporaryDirectory(prefix="captures-") as space:
                    try:
                        differs = compare(port, name, fault, Path(space))
                    except XverifyError as error:
                        differs = str(error)
                rows, seen = rows + 1, seen | {port.folder.name}
                if differs:
                    print(f"  WRONG: {port.folder.name} {name}: {differs}", flush=True)
                    wrong.append(port.folder.name)
    print(
        f"{'FAIL' if wrong else 'PASS'}: {len(wrong)} of {rows} verdicts of {len(seen)} ports differ; "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 1 if wrong or not rows else 0


if __name__ == "__main__":
    sys.exit(main())
