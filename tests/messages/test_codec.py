"""Messages are unchanged after encoding and decoding, and invalid lines are refused."""

import dataclasses
import json
import math
import subprocess
import sys
import typing
from collections.abc import Mapping

import pytest

from xverify.framework.capture import LayerCall
from xverify.framework.dropout import DropoutCall, DropoutLayer
from xverify.framework.modelfile import Signature, Tensor
from xverify.messages import Block, Built, Started, Timed, Warm, Warmed, codec
from xverify.messages import reference as messages_reference
from xverify.messages.codec import Hello, MessageError, Refusal
from xverify.messages.training import TrainingState
from xverify.results.precision import LayerCost, Precision
from xverify.verdict.findings import Explanation, Finding, ReplayReport, Rounding, StepTruth
from xverify.verdict.matching import Place
from xverify.weights.stored import BatchNorm
from xverify.workload.losses import Loss, Objective
from xverify.workload.optimizers import optimizer

CALL = LayerCall("fc", 0, ("0.npy",), ("1.npy",), (None, "2.npy"), ("3.npy",))
REPORT = ReplayReport(
    (
        Finding("fc", 0, 1, "Linear", "output", math.inf, 2.0, 784, None, 0.5, 1e-300, "another shape"),
        Finding("fc", 1, 0, "Linear", "output", 50.0, 2.0, rounding=Explanation("TF32 weights", "has", True)),
    ),
    {"fc": 2},
    {"relu": 1},
    {"fc": Explanation("eps", "behaves as eps=1e-05", True)},
    math.nan,
)
STATE = TrainingState("weights.npz", "", 3)
SAMPLES = {
    float: math.pi,
    int: 7,
    str: "naïve\n\"quoted\" 'text'",
    bool: True,
    type(None): None,
    typing.Any: {"deep": [1, None, {"er": 1.5}]},
    LayerCall: CALL,
    ReplayReport: REPORT,
    Place: Place("fc", "Linear", (4, 8), ()),
    TrainingState: STATE,
    DropoutLayer: DropoutLayer("drop", 0.5, 2.0, False, 2**15),
    DropoutCall: DropoutCall("drop", 0, (4, 8), "fc1", ""),
    Signature: Signature((Tensor("x", ("batch", None, 3), "bfloat16"), Tensor("y", None, "int64")), ()),
    BatchNorm: BatchNorm("bn1", "bn1.weight", "", "bn1.running_mean", "bn1.running_var", 1e-5, "conv1.weight"),
    Rounding: Rounding("fc", 1, "bfloat16 weights"),
    Precision: Precision("int8 static", "int8", "int8", "float32", True, "uint8", "static", "per channel", {"int8": 3}),
    LayerCost: LayerCost("fc", "Gemm", "head.fc", 0.1, 20.0, 0.2, 14.0, 0.5, 40.0, None, 1.5, "logits"),
    messages_reference.Fault: messages_reference.Fault("fc", 0, "eps", "behaves as", False),
    StepTruth: StepTruth(2.0, 1e-6, {"a": 1e-6}, {"a": 1.0}, {}, {"bn": 8}, {"bn": None}),
    Objective: Objective(
        (Loss("cross_entropy", "y", "t", ignore_index=-1, class_weights=(1, 2)),), {"t": None, "m": "NCHW"}
    ),
    type(optimizer("sgd")): dataclasses.replace(optimizer("adam", lr=0.1), variants=("eps-hat",)),
}


def sample(kind):
    """A value of this type."""
    arms = typing.get_args(kind)
    origin = typing.get_origin(kind)
    if origin is tuple:
        return (sample(arms[0]),) * 2 if arms[-1] is Ellipsis else tuple(map(sample, arms))
    if origin in (dict, Mapping):
        return {"a": sample(arms[1]), "b.c": sample(arms[1])}
    if arms:
        return sample(arms[0])
    return message(kind) if kind not in SAMPLES and dataclasses.is_dataclass(kind) else SAMPLES[kind]


def message(kind):
    hints = typing.get_type_hints(kind)
    return kind(**{field.name: sample(hints[field.name]) for field in dataclasses.fields(kind)})


@pytest.mark.parametrize("kind", codec.REQUESTS.values(), ids=lambda kind: kind.__name__)
def test_a_request_is_unchanged_after_encoding_and_decoding(kind):
    request = message(kind)
    line = codec.encode_request(7, request)
    assert line.count(b"\n") == 1
    number, found = codec.decode_request(line)
    assert (number, type(found), repr(found)) == (7, kind, repr(request))


@pytest.mark.parametrize("kind", codec.REQUESTS.values(), ids=lambda kind: kind.__name__)
def test_a_reply_is_unchanged_after_encoding_and_decoding(kind):
    reply = sample(kind.reply_type)
    number, found = codec.decode_reply(codec.encode_reply(8, reply), kind.reply_type)
    assert (number, type(found), repr(found)) == (8, type(reply), repr(reply))


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.0, 5e-324, 1.7976931348623157e308, 0.1 + 0.2])
def test_every_float_is_unchanged_after_encoding_and_decoding(value):
    _, found = codec.decode_reply(codec.encode_reply(1, Timed(value)), Timed)
    assert repr(found.seconds) == repr(value)


def test_a_refusal_is_unchanged_after_encoding_and_decoding():
    refusal = Refusal("unsupported", "no float64")
    assert codec.decode_reply(codec.encode_reply(3, refusal), Timed) == (3, refusal)


def test_a_hello_is_distinguished_from_other_lines():
    hello = Hello(codec.VERSION, 12, "3.11.7")
    assert codec.decode_hello(codec.encode_hello(hello)) == hello
    for line in (
        b"",
        b"warming up\n",
        b"[1]\n",
        b'{"ok": 1}\n',
        b'{"xverify": 2}\n',
        b'{"xverify":"2","pid":1,"python":""}',
    ):
        assert codec.decode_hello(line) is None
    assert codec.hello_version(b'{"xverify": 1, "pid": 123, "python": "3.9.1", "more": 1}') == 1


def line(**message):
    return json.dumps(message).encode()


@pytest.mark.parametrize(
    ("broken", "says"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe\n", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[1]", "not a JSON object"),
        (line(reply={"seconds": 1.0}), "has no number"),
        (line(id=None, reply={"seconds": 1.0}), "has no number"),
        (line(id=True, reply={"seconds": 1.0}), "has no number"),
        (line(id=1.0, reply={"seconds": 1.0}), "has no number"),
        (line(id=1), "it has no reply or error, or something beside it"),
        (line(id=1, reply={"seconds": 1.0}, second=2.0), "it has no reply or error, or something beside it"),
        (line(id=1, error={"status": "failed", "reason": "x"}, reply=None), "or something beside it"),
        (line(id=1, reply="Timed"), "Timed: expected an object with named fields, got 'Timed'"),
        (line(id=1, reply=["Timed"]), "Timed: expected an object with named fields, got ['Timed']"),
        (line(id=1, reply=None), "Timed: expected an object with named fields, got None"),
        (line(id=1, reply={"case": 0, "calls": 1}), "Timed: unknown 'calls', 'case'"),
        (line(id=1, reply={}), "Timed: missing 'seconds'"),
        (line(id=1, reply={"seconds": 1.0, "second": 2.0}), "Timed: unknown 'second'"),
        (line(id=1, reply={"seconds": "1.0"}), "Timed.seconds: expected float, got '1.0'"),
        (line(id=1, reply={"seconds": True}), "Timed.seconds: expected float, got True"),
        (line(id=1, reply={"seconds": None}), "Timed.seconds: expected float, got None"),
        (line(id=1, reply={"seconds": 1.0, "unfinished_seconds": []}), "expected float or null, got []"),
        (line(id=1, error="it failed"), "Refusal: expected an object"),
        (line(id=1, error={"status": "failed"}), "Refusal: missing 'reason'"),
    ],
)
def test_a_line_that_is_no_reply_is_refused_with_its_reason(broken, says):
    with pytest.raises(MessageError) as refused:
        codec.decode_reply(broken, Timed)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("kind", "reply", "says"),
    [
        (Warmed, {"calls": 1.0, "seconds": 1.0, "seconds_per_call": 1.0}, "Warmed.calls: expected int, got 1.0"),
        (Warmed, {"calls": True, "seconds": 1.0, "seconds_per_call": 1.0}, "Warmed.calls: expected int, got True"),
        (Built, {"seconds": 1, "shapes": {"w": 3}, "fused_parameters": {}}, "Built.shapes['w']: expected a list"),
        (Built, {"seconds": 1, "shapes": {"w": ["3"]}, "fused_parameters": {}}, "Built.shapes['w'][0]: expected int"),
        (Built, {"seconds": 1, "shapes": [], "fused_parameters": {}}, "Built.shapes: expected dict"),
        (tuple[Place, ...], [["fc", "Linear", [1], [2]]], "[0]: expected an object with named fields"),
        (TrainingState, {"weights": "w", "steps": 1}, "TrainingState: missing 'optimizer_state'"),
        (TrainingState, {**vars(STATE), "more": 1}, "TrainingState: unknown 'more'"),
        (type(None), {"seconds": 1.0}, "expected null, got {'seconds': 1.0}"),
        (str, None, "str: expected str, got None"),
        (int | None, "3", "expected int or null, got '3'"),
    ],
)
def test_a_reply_of_another_type_is_refused_with_its_reason(kind, reply, says):
    with pytest.raises(MessageError) as refused:
        codec.decode_reply(line(id=1, reply=reply), kind)
    assert says in str(refused.value)
    assert refused.value.number == 1


def test_a_pair_has_two_values():
    plain = {"folder": "", "records": [], "channels_last": False, "inputs": "", "case": 0, "weights": "", "seed": 0}
    with pytest.raises(MessageError, match=r"Replay.planted: expected tuple\[str, int\] or null"):
        codec.decode_request(line(id=1, ask="Replay", **plain, planted=["fc", 1, 2]))
    assert codec.decode_request(line(id=1, ask="Replay", **plain, planted=["fc", 1]))[1].planted == ("fc", 1)


def test_a_request_that_is_refused_keeps_its_number():
    with pytest.raises(MessageError, match="Block: missing 'calls'") as refused:
        codec.decode_request(line(id=9, ask="Block", case=0))
    assert refused.value.number == 9


def test_a_reply_that_json_cannot_represent_is_refused_before_it_is_sent():
    with pytest.raises(MessageError, match="Started cannot be written as JSON"):
        codec.encode_reply(1, Started(1.0, {"version": object()}))


def test_fields_that_are_left_out_have_their_defaults():
    assert codec.decode_request(line(id=1, ask="Block", case=0, calls=2))[1] == Block(0, 2, None, 0)


def test_an_int_is_accepted_as_a_float_and_converted():
    _, request = codec.decode_request(codec.encode_request(1, Warm(calls=1, seconds=0)))
    assert isinstance(request.seconds, float)


def test_the_codec_needs_only_the_standard_library():
    code = (
        "import sys, importlib.util; "
        "spec = importlib.util.spec_from_file_location('codec', sys.argv[1]); module = importlib.util.module_from_spec(spec); "
        "sys.modules['codec'] = module; spec.loader.exec_module(module); "
        "print([name for name in ('numpy', 'psutil', 'scipy', 'rich', 'xverify') if name in sys.modules])"
    )
    command = [sys.executable, "-I", "-c", code, codec.__file__]
    assert subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip() == "[]"


def test_a_worker_imports_no_library_but_numpy(tmp_path):
    code = (
        "import sys, xverify.worker.session; "
        "print([name for name in ('psutil', 'scipy', 'rich', 'msgspec', 'torch') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout.strip() == "[]"
