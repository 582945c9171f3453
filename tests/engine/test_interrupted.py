"""An interrupted run keeps what was judged, and says of every other subject how far it came."""

import json
import os
import signal

import pytest

import xverify
from xverify.progress import Listener
from xverify.results.file import read
from xverify.results.records import INTERRUPTED, NOT_JUDGED, NOT_RUN

pytestmark = pytest.mark.slow
FORWARD = ("torch:eager", "torch:script", "onnxruntime", "openvino")
TRAINED = ("torch:eager", "torch:script", "tensorflow:eager")
OK = ("ok", None)


class Interrupting(Listener):
    """Sends Ctrl-C to this process when a subject does something, and reads the result file before."""

    def __init__(self, label, doing, file):
        self.label, self.doing, self.file, self.so_far = label, doing, file, None

    def phase(self, label, text):
        if self.doing and label == self.label and text.startswith(self.doing):
            self.doing = ""
            self.so_far = json.loads(self.file.read_text()) if self.file.exists() else None
            os.kill(os.getpid(), signal.SIGINT)


@pytest.mark.parametrize(
    ("settings", "subjects", "at", "expected"),
    [
        ({"no_timing": True}, FORWARD, ("onnxruntime", "importing"), [("failed", NOT_RUN)] * 4),
        ({"no_timing": True}, FORWARD, ("reference", "exporting ONNX"), [("failed", NOT_RUN)] * 4),
        (
            {"no_timing": True}, FORWARD, ("reference", "replaying the layers of onnxruntime"),
            [OK, OK, ("failed", INTERRUPTED), ("failed", INTERRUPTED)],
        ),
        (
            {"warmup": 1, "rerun": 3}, FORWARD, ("reference", "replaying the layers of onnxruntime"),
            [OK, OK, ("failed", INTERRUPTED), ("failed", INTERRUPTED)],
        ),
        (
            {"no_timing": True, "task": "train"}, TRAINED, ("torch:script", "training-parity checks"),
            [OK, ("failed", INTERRUPTED), ("failed", INTERRUPTED)],
        ),
        (
            {"no_timing": True, "task": "forward,train"}, TRAINED[:2], ("reference", "computing in float64"),
            [("failed", None)] * 2 + [("failed", NOT_RUN)] * 2,
        ),
    ],
    ids=["import", "build", "layers", "timed", "train", "two tasks"],
)  # fmt: skip
def test_what_was_judged_is_kept_and_the_rest_says_how_far_it_came(tmp_path, settings, subjects, at, expected):
    file = tmp_path / "r.json"
    listener = Interrupting(*at, file)
    result = xverify.run("mlp", subjects, json=file, listener=listener, cases=1, **settings)
    assert listener.doing == "", "it was not interrupted"
    found = [(row.status, row.reason) for row in result.rows]
    assert [each[0] for each in found] == [each[0] for each in expected], found
    assert all(reason in (want, INTERRUPTED, NOT_RUN) for (_, reason), (_, want) in zip(found, expected))
    assert [row.error is not None for row in result.rows] == [status == "ok" for status, _ in expected]
    assert (result.verdict, result.verdict.exit_code, result.interrupted, result.complete) == ("ERROR", 3, True, False)
    assert [row.outcome for row in read(file).rows] == [row.outcome for row in result.rows]
    if "rerun" in settings:
        assert [(row["status"], row["reason"]) for row in listener.so_far["rows"]] == [("failed", NOT_JUDGED)] * 4
        assert all(row.speed.samples for row in result.rows)
