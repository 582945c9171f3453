"""Checks architectures of torchvision, exported to ONNX by both exporters of torch, on ONNX Runtime and on OpenVINO.

python suites/vision.py [--models LIST] [--first N] [--minutes M]

Every export is checked against the other one, and against itself on both runtimes: in float32, an answer other than EQUAL is a
false alarm, and the exit code is 1. Float16 and dynamic int8 versions are checked against the float32 export; their answers are
printed.
Weights are random, and images are small: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pool

from xverify.checking.api import check
from xverify.errors import Failed, XverifyError
from xverify.results.records import Result, Row
from xverify.results.verdicts import Verdict

SUITES = Path(__file__).parent
LONGEST = 900.0  # seconds for the exports of one architecture
STEP = 300.0  # seconds that one step of a check may take
RUNTIMES = "onnxruntime,openvino"
SHOWN = 3  # layers of a ranking


def export(name: str, folder: Path) -> list[str]:
    """Export one architecture. Returns what could not be exported, in words."""
    command = [sys.executable, SUITES / "vision_export.py", name, folder]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=LONGEST,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [f"no export within {LONGEST:g} s"]
    lines = [
        line for line in done.stdout.splitlines() if line.partition(":")[0] in ("script", "dynamo", "float16", "int8")
    ]
    if done.returncode:
        lines.append(done.stderr.strip().splitlines()[-1] if done.stderr.strip() else f"exit code {done.returncode}")
    return lines


def answers(result: Result) -> list[str]:
    """What a row says, for every row."""
    return [f"{row.subject} on {row.framework}, {row.task}: {_answer(row)}" for row in result.rows]


def _answer(row: Row) -> str:
    if row.error is None:
        return f"{row.status}: {row.reason}"
    return f"{row.error.verdict}{f' ({row.error.reason})' if row.error.reason else ''}"


def alarms(result: Result) -> list[str]:
    """The rows of a float32 file that are not EQUAL."""
    found = []
    for row, text in zip(result.rows, answers(result)):
        if row.error is None or row.error.verdict > Verdict.EQUAL:
            found.append(text)
    return found


def narrow(result: Result) -> str:
    """The answer of a file in lower precision to the question of the conversion, with its figures and its worst nodes."""
    row = result.rows[-1]
    if row.error is None:
        return f"{row.status}: {row.reason}"
    figures = next(iter(row.figures.values()), None)
    said = [str(row.error.verdict)]
    if figures is not None:
        said += [f"{name} {value:.3g}" for name in ("top1", "sqnr") if (value := getattr(figures, name)) is not None]
    runtime = next(each for each in result.rows if each.task == "runtime")
    layers = runtime.error.layers if runtime.error else None
    said.append(f"runtime {runtime.error.verdict if runtime.error else runtime.status}")
    if layers is not None:
        wrong = [layer for layer in layers.layers if layer.verdict > Verdict.EQUAL]
        said += [f"{layer.layer} {layer.verdict} {layer.ratio:.3g}" for layer in wrong[:SHOWN]]
    return ", ".join([*said, *ranking(row)])


def ranking(row: Row) -> list[str]:
    """The layers of a quantised file that cost most, in words. Raises Failed when a quantised file has no ranking."""
    if row.precision is None or not row.precision.quantised:
        return []
    costs = row.quantisation.layers if row.quantisation else ()
    ranked = [each for each in costs if each.share is not None]
    if not ranked:
        raise Failed(f"no ranking of its layers: {row.quantisation.stopped if row.quantisation else 'none was made'}")
    shown = [f"{each.layer} {each.share:.1%}" for each in ranked[:SHOWN]]
    return [f"{len(ranked)} of {row.quantisation.known if row.quantisation else 0} layers ranked: {'; '.join(shown)}"]


def check_one(name: str) -> tuple[list[str], bool]:
    """Check one architecture. Returns the alarms, and whether it was exported by both exporters."""
    with tempfile.TemporaryDirectory(prefix="vision-") as place:
        folder = Path(place)
        lacking = export(name, folder)
        for line in lacking:
            print(f"  not exported: {line}")
        files = [folder / f"{kind}.onnx" for kind in ("script", "dynamo") if (folder / f"{kind}.onnx").is_file()]
        if not files:
            return [f"{name}: neither exporter exports it"], False
        found = []
        for reference in files:
            result = check(files, against=str(reference), on=RUNTIMES, timeout=STEP)
            print(f"  against {reference.name}: {', '.join(_short(row) for row in result.rows)}", flush=True)
            found += [f"{name} against {reference.name}: {text}" for text in alarms(result)]
        for kind in ("float16", "int8"):
            file = folder / f"{kind}.onnx"
            if file.is_file():
                print(f"  {kind}: {narrow(check(file, against=str(files[0]), timeout=STEP))}", flush=True)
        return found, len(files) == 2


def _short(row: Row) -> str:
    return str(row.error.verdict) if row.error is not None else row.status


def main() -> int:
    from vision_export import ARCHITECTURES

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--models", default=",".join(ARCHITECTURES), help="architectures (default: all of them)")
    parser.add_argument("--first", type=int, default=len(ARCHITECTURES), help="only the first so many")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin none after so long (default: %(default)s)")
    asked = parser.parse_args()
    begun, found, both, names = time.monotonic(), [], 0, asked.models.split(",")[: asked.first]
    done = 0
    with pool.lend():
        for name in names:
            if time.monotonic() - begun > asked.minutes * 60:
                break
            started = time.monotonic()
            print(f"{name}:", flush=True)
            try:
                wrong, exported = check_one(name)
            except XverifyError as error:
                wrong, exported = [f"{name}: {error}"], False
            for text in wrong:
                print(f"  FALSE ALARM: {text}")
            found += wrong
            both += exported
            done += 1
            print(f"  {time.monotonic() - started:.0f} s", flush=True)
    print(
        f"{'FAIL' if found else 'PASS'}: {len(found)} false alarms in {done} of {len(names)} architectures, {both} by both "
        f"exporters; {time.monotonic() - begun:.0f} s"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
