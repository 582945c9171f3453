"""Right int8 files of architectures of torchvision by four tools, checked against the float32 network.

``python suites/vision.py --only int8`` runs it. ONNX Runtime and NNCF quantise the exported network. TensorFlow Lite's file is
converted from a Keras file with the same weights by ``xverify convert``, which checks it against that file first.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx
from quantised_files import Calibration, Scheme

import xverify
from xverify.checking.api import check
from xverify.errors import XverifyError
from xverify.results.records import Result, Row
from xverify.results.verdicts import Verdict

SUITES = Path(__file__).parent
NETWORKS = (
    "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3_small", "squeezenet1_1", "shufflenet_v2_x0_5", "mnasnet0_5",
    "regnet_y_400mf", "densenet121", "efficientnet_b0",
)  # fmt: skip
STEP = 300.0  # seconds that one step of a check may take
LONGEST = 900.0  # seconds in which a file is written
SCHEMES = {"static": Scheme("QDQ"), "per-channel": Scheme("QDQ", per_channel=True), "dynamic": Scheme("dynamic")}
WITHIN = 3.0  # noise floors; the error of an output that is too coarse for a verdict is no larger


@dataclass(frozen=True)
class Answer:
    """What a check says about a file. sqnr: of the worst output, in dB. seconds: of the whole check, of all its files.

    word: "EQUAL", or "DRIFT" where the answer names what costs; "coarse" where 8 bits change the outputs by as much as they are
        and nothing differs by more; otherwise "wrong".
    """

    network: str
    kind: str
    runtime: str
    conversion: str
    sqnr: float | None
    reason: str
    seconds: float
    word: str

    def __str__(self) -> str:
        figure = "" if self.sqnr is None else f", {self.sqnr:.1f} dB"
        told = f" ({self.reason})" if self.reason else ""
        return f"{self.kind}: {self.word}: runtime {self.runtime}, conversion {self.conversion}{figure}{told}; {self.seconds:.0f} s"


def judged(network: str, kind: str, rows: Sequence[Row], seconds: float) -> Answer:
    """The answer on one file. rows: one for each question."""
    by_task = {row.task: row for row in rows}
    said = {task: str(row.error.verdict) if row.error else row.status for task, row in by_task.items()}
    figures = [each.sqnr for each in by_task["conversion"].figures.values() if each.sqnr is not None]
    reasons = [(row.error.reason if row.error else row.reason) or "" for row in rows if _of(row) > Verdict.EQUAL]
    return Answer(
        network,
        kind,
        said.get("runtime", "-"),
        said["conversion"],
        min(figures, default=None),
        "; ".join(reasons),
        seconds,
        _word(rows),
    )


def _of(row: Row) -> Verdict:
    return Verdict.INVALID if row.error is None else row.error.verdict


def _word(rows: Sequence[Row]) -> str:
    worst = max(map(_of, rows))
    if worst <= Verdict.EQUAL:
        return "EQUAL"
    if worst == Verdict.DRIFT:
        return "DRIFT"
    return "coarse" if all(_of(row) <= Verdict.DRIFT or _is_coarse(row) for row in rows) else "wrong"


def _is_coarse(row: Row) -> bool:
    """Whether an answer is UNTESTED because of its noise alone."""
    tensors = row.error.tensors if row.error is not None and row.error.verdict == Verdict.UNTESTED else ()
    return bool(tensors) and all(each.noise_ratio is not None and each.noise_ratio <= WITHIN for each in tensors)


def answers(name: str, folder: Path) -> Iterator[Answer]:
    """The answers on one network. A file that cannot be made or checked ends it with one that is wrong."""
    begun = time.monotonic()
    try:
        yield from _answers(name, folder)
    except (XverifyError, subprocess.SubprocessError) as error:
        said = str(error)
        if isinstance(error, subprocess.CalledProcessError):
            said = error.stderr.decode(errors="replace").strip().splitlines()[-1]
        yield Answer(name, "file", "-", "-", None, said, time.monotonic() - begun, "wrong")


def _answers(name: str, folder: Path) -> Iterator[Answer]:
    plain, keras = folder / "script.onnx", folder / "float.keras"
    for command in (("vision_export.py", name, folder, "script"), ("vision_keras.py", name, keras)):
        subprocess.run(
            [sys.executable, SUITES / command[0], *command[1:]], capture_output=True, timeout=LONGEST, check=True
        )
    begun = time.monotonic()
    lite = folder / "tflite.tflite"
    converted = xverify.convert(str(keras), lite, quantize="int8", timeout=STEP)
    yield judged(name, "tflite, against Keras", _rows(converted, lite.name), time.monotonic() - begun)
    files = [*(folder / f"{kind}.onnx" for kind in SCHEMES), folder / "openvino.xml", lite]
    for file, scheme in zip(files, SCHEMES.values()):
        onnx.save(scheme.quantise(onnx.load(plain), folder), file)
    quantise_by_nncf(plain, files[-2])
    begun = time.monotonic()
    result = check(files, against=str(plain), timeout=STEP)
    for file in files:
        yield judged(name, file.stem, _rows(result, file.name), time.monotonic() - begun)


def _rows(result: Result, name: str) -> list[Row]:
    return [row for row in result.rows if row.subject == name]


def quantise_by_nncf(plain: Path, file: Path) -> None:
    """Write the OpenVINO file that NNCF's quantisation after training makes of an ONNX file."""
    import nncf
    import openvino

    cases = Calibration(onnx.load(plain)).left
    given: list[dict[int, np.ndarray]] = [dict(enumerate(case.values())) for case in cases]
    made = nncf.quantize(openvino.convert_model(str(plain)), nncf.Dataset(given), subset_size=len(given))
    openvino.save_model(made, str(file), compress_to_fp16=False)
