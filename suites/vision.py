"""Checks architectures of torchvision, exported to ONNX by both exporters of torch, on ONNX Runtime and on OpenVINO.

python suites/vision.py [--only LIST] [--models LIST] [--first N] [--minutes M]

Every export is checked against the other one, and against itself on both runtimes: in float32, an answer other than EQUAL is a
false alarm, and the exit code is 1. Float16 and dynamic int8 versions are checked against the float32 export; their answers are
printed. ``--only int8`` checks the int8 files of four tools instead: see ``vision_int8.py``; it needs NNCF.
Weights are random, and images are small: nothing is downloaded.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import pool
from tables import named, table
from vision_int8 import NETWORKS as INT8
from vision_int8 import Answer
from vision_int8 import answers as answers_of

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


def check_floats(names: Sequence[str], until: float) -> tuple[int, str]:
    """Check the float32 exports. Returns the number of false alarms and a phrase about the exports. until: begin none later."""
    wrong, both, done = 0, 0, 0
    for name in names:
        if time.monotonic() > until:
            break
        started = time.monotonic()
        print(f"{name}:", flush=True)
        try:
            found, exported = check_one(name)
        except XverifyError as error:
            found, exported = [f"{name}: {error}"], False
        for text in found:
            print(f"  FALSE ALARM: {text}")
        wrong, both, done = wrong + len(found), both + exported, done + 1
        print(f"  {time.monotonic() - started:.0f} s", flush=True)
    return wrong, f"{done} of {len(names)} architectures, {both} by both exporters"


def check_int8(names: Sequence[str], until: float) -> tuple[int, str]:
    """Check the int8 files of four tools. Returns the number of false alarms and a phrase. until: begin none later."""
    found: list[Answer] = []
    for name in names:
        if time.monotonic() > until:
            break
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory(prefix="vision-") as place:
            for each in answers_of(name, Path(place)):
                print(f"  {each}", flush=True)
                found.append(each)
    rows: dict[str, dict[str, int]] = {}
    for each in found:
        row = rows.setdefault(each.kind, {})
        row[each.word] = row.get(each.word, 0) + 1
    print(table(rows, ("EQUAL", "DRIFT", "coarse", "wrong"), "int8 file"))
    return sum(each.word == "wrong" for each in found), f"{len(found)} int8 files"


def main() -> int:
    from vision_export import ARCHITECTURES

    parts = {"float": (check_floats, tuple(ARCHITECTURES)), "int8": (check_int8, INT8)}
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="float", help=f"parts, of {', '.join(parts)} (default: %(default)s)")
    parser.add_argument("--models", default="", help="architectures (default: all of a part)")
    parser.add_argument("--first", type=int, help="only the first so many")
    parser.add_argument("--minutes", type=float, default=120.0, help="begin none after so long (default: %(default)s)")
    asked = parser.parse_args()
    begun, wrong, says = time.monotonic(), 0, []
    with pool.lend():
        for part in named(parser, "--only", asked.only, parts):
            run, known = parts[part]
            names = named(parser, "--models", asked.models, ARCHITECTURES) if asked.models else known
            more, text = run(names[: asked.first], begun + asked.minutes * 60)
            wrong, says = wrong + more, [*says, text]
    print(f"{'FAIL' if wrong else 'PASS'}: {wrong} false alarms in {'; '.join(says)}; {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
