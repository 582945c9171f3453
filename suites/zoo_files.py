"""Converts every model of the zoo to every format, and checks the files of a model against one another.

python suites/zoo_files.py [--models LIST] [--minutes M] [--once]

Each model is converted by `xverify convert`, with weights drawn from a seed, and its files are checked by `xverify check FILES
--against FILE`, with each file in turn as the reference, or with --once each pair in one direction. All files are float32, so an
answer other than EQUAL is a false alarm, and the exit code is 1. A format that a model cannot be exported to is named, with the
reason.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pool

from xverify.checking.api import check
from xverify.errors import XverifyError
from xverify.results.records import Result, Row
from xverify.results.verdicts import Verdict

SUITES = Path(__file__).parent
LONGEST = 900.0  # seconds of one conversion
CANNOT_RUN = 3  # exit code
STEP = 300.0  # seconds that one step of a check may take
# In the order of their cost.
MODELS = (
    "mlp,dynamic-loop,vit-tiny,gpt-tiny,lstm-fused,lstm-cell,lstm-finegrained,unet-small,mobilenet-v3-small,resnet50-cifar10,resnet18,"
    "resnet50,alexnet,vgg16,resnet152"
)
# Name of the file -> arguments of `xverify convert`.
FILES = {
    "script.onnx": ("--to", "onnx", "--exporter", "torchscript"),
    "dynamo.onnx": ("--to", "onnx", "--exporter", "dynamo"),
    "script.pt": ("--to", "torchscript"),
    "exported.pt2": ("--to", "pt2"),
    "saved": ("--to", "savedmodel"),
    "file.keras": ("--to", "keras"),
    "file.h5": ("--to", "h5"),
    "lite.tflite": ("--to", "tflite"),
    "ir.xml": ("--to", "openvino"),
}


def convert(model: str, folder: Path) -> list[Path]:
    """Convert a model to every format. Prints what could not be done. Returns the files."""
    found = []
    environment = {**os.environ, "XVERIFY_CONVERTERS": str(SUITES / "converters")}
    for name, arguments in FILES.items():
        out, report = folder / name, folder / "report.json"
        command = [
            sys.executable,
            "-m",
            "xverify",
            "convert",
            model,
            out,
            *arguments,
            "--weights",
            "probe",
            "--batch",
            "2",
            "--quiet",
            "--json",
            report,
        ]
        try:
            done = subprocess.run(
                [str(part) for part in command],
                capture_output=True,
                text=True,
                check=False,
                timeout=LONGEST,
                env=environment,
            )
        except subprocess.TimeoutExpired:
            print(f"  {name}: no conversion within {LONGEST:g} s")
            continue
        said = (done.stdout.strip() or done.stderr.strip() or "nothing").splitlines()[-1]
        if not out.exists():
            print(f"  {name}: not written: {said}", flush=True)
        elif done.returncode == CANNOT_RUN:
            print(f"  {name}: cannot be opened without the code of the model: {_reason(report)}", flush=True)
        else:
            found.append(out)
            print(f"  {name}: {said}", flush=True)
    return found


def _reason(report: Path) -> str:
    """Why the first row of a result file could not run."""
    return str(json.loads(report.read_text())["rows"][0]["reason"])


def alarms(result: Result, reference: str) -> list[str]:
    """The rows that are not EQUAL. Nothing else than ONNX and torch answers the question of the runtime."""
    found = []
    for row in result.rows:
        untested = row.task == "runtime" and row.error is not None and row.error.verdict == Verdict.UNTESTED
        if not untested and (row.error is None or row.error.verdict > Verdict.EQUAL):
            found.append(f"{row.subject} ({row.task}) against {reference}: {_why(row)}")
    return found


def _why(row: Row) -> str:
    if row.error is None:
        return f"{row.status}: {row.reason}"
    return f"{row.error.verdict}: {row.error.reason}"


def check_all(files: list[Path], once: bool) -> tuple[int, list[str]]:
    """Check all files against each of them in turn. Returns the number of pairs, and the false alarms.

    once: check each pair in one direction only, with the earlier file as the reference.
    """
    found, pairs = [], 0
    for index, reference in enumerate(files):
        candidates = files[index + 1 :] if once else [file for file in files if file != reference]
        if not candidates:
            continue
        pairs += len(candidates)
        begun = time.monotonic()
        try:
            result = check(candidates, against=str(reference), timeout=STEP)
        except XverifyError as error:
            found.append(f"against {reference.name}: {error}")
            continue
        said = ", ".join(
            f"{row.subject} {row.error.verdict if row.error else row.status}"
            for row in result.rows
            if row.task == "conversion"
        )
        print(f"  against {reference.name}: {said}; {time.monotonic() - begun:.0f} s", flush=True)
        found += alarms(result, reference.name)
    return pairs, list(dict.fromkeys(found))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=MODELS, help="models of the zoo (default: all of them)")
    parser.add_argument("--minutes", type=float, default=180.0, help="begin none after so long (default: %(default)s)")
    parser.add_argument("--once", action="store_true", help="check each pair of files in one direction only")
    asked = parser.parse_args()
    begun, names, found, done, pairs = time.monotonic(), asked.models.split(","), [], 0, 0
    with pool.lend():
        for name in names:
            if time.monotonic() - begun > asked.minutes * 60:
                break
            print(f"{name}:", flush=True)
            with tempfile.TemporaryDirectory(prefix="zoo-files-") as folder:
                files = convert(name, Path(folder))
                checked, wrong = check_all(files, asked.once) if files else (0, ["no format takes it"])
            for text in wrong:
                print(f"  FALSE ALARM: {text}", flush=True)
            found += [f"{name}: {text}" for text in wrong]
            pairs += checked
            done += 1
    print(
        f"{'FAIL' if found else 'PASS'}: {len(found)} false alarms in {pairs} pairs of files of {done} of {len(names)} models; "
        f"{time.monotonic() - begun:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
