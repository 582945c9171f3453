"""Results with values in nearly every field, for tests of what reads and shows results."""

import copy
import math
from dataclasses import replace

from xverify.results.conditions import (
    Host,
    InputsSummary,
    NoiseSummary,
    ReferenceSummary,
    Settings,
    WeightsSummary,
)
from xverify.results.records import (
    Check,
    Curve,
    Error,
    LayerError,
    Layers,
    Memory,
    ProcessRun,
    Result,
    Row,
    Sample,
    Speed,
    TensorError,
    Training,
)
from xverify.results.verdicts import Outcome, SpeedVerdict, Verdict
from xverify.workload.optimizers import Optimizer

LAYERS = Layers(
    (
        LayerError("fc1", "Linear", 1, 0.16, 0.47, 0.0, Verdict.EQUAL, terms=784, mean_abs=1e-7, rel_rms=1.4e-7),
        LayerError("fc2", "Linear", 2, math.inf, math.inf, 0.5, Verdict.DIFFERENT, reason="output has shape (4, 2)"),
    ),
    compared=2, known=3, missing=("act",), subject="jittor", matched={"fc1": "linear"},
)  # fmt: skip
SPEED = Speed(
    132523.9, (125234.6, None), 2.4e-4, 2.1, 8890, 1967, 1.06, (None, None), SpeedVerdict.SLOWER, None, 3.4, 4.7e-4,
    122.6, 5.6e-4, (Sample(0, 1, 254, 0.067), Sample(1, 0, 254, 0.067, 1, "other processes")), 0, 3.4,
    (ProcessRun(0, 122.6, 5.6e-4, 3.4, 4.7e-4, 1967, 0.48, True, 0, 1e-3),), None, True,
)  # fmt: skip
FORWARD = Row(
    "jittor", "jittor", "eager", "forward", "cpu", 32, "ok", None, "sha256:1", "canonical -> jittor",
    error=Error(
        Verdict.DIFFERENT, "fc2: output has shape (4, 2)", 4e-7, 2e-6, 4e-7, 1.04, 4, 4, 4,
        (TensorError(0, "logits", 4e-7, 2e-6, 4e-7, 1.0, None, 0.44, True),), 0.47, LAYERS,
    ),
    speed=SPEED, memory=Memory(271.3, 271.2, 246.4), environment={"jittor": "1.3", "threads": 2, "nested": {"a": [1]}},
)  # fmt: skip
TRAINED = Row(
    "keras-jax", "keras-jax", "jit", "train", "cpu", 4, "ok",
    error=Error(Verdict.DRIFT, "eps-hat"),
    training=Training(
        "adam, lr 0.001", ("eps-hat",),
        (Check("weights", 0, Verdict.EQUAL), Check("update", 0, Verdict.DRIFT, 12.5, "eps", "eps-hat", 15, 15)),
        Curve((9.2, 9.1), (9.2, 9.0), (9.2, 9.0), (9.2, 9.0), 2, Verdict.EQUAL), ("fc.bias",), ("drop",), LAYERS,
    ),
)  # fmt: skip
ABSENT = Row("tensorlayer", "tensorlayer", "eager", "forward", "cpu", 32, "not-installed", "pip install tensorlayer")
RESULT = Result(
    "mlp", ("forward", "train"), Outcome.FAIL, (FORWARD, TRAINED, ABSENT), "2026-11-22T10:25:51+00:00", "0.1.0",
    Host("a processor", 2, 23.5, "Linux", "3.11.7", (4.13, 2.12, 0.84)),
    Settings(
        model="mlp", subjects=("torch:eager", "jittor"), reference="torch", task="train", batch=32, threads=2, seed=3,
        cases=4, timeout=1800.0, pin=(0, 1),
        python={"jittor": "/python"}, optimizer=Optimizer("adam", 1e-3, variants=("eps-hat",)),
        folder_digest="sha256:2",
    ),
    WeightsSummary("sha256:1", 4, 407050, 0, "probe weights, seed 3", {"lstm.bias": ("lstm.bias_ih", "lstm.bias_hh")}),
    InputsSummary("sha256:3", 4, "synthetic, seed 3"),
    ReferenceSummary("torch", "float64", "the rounding of every layer", "exported", {"torch": "2.13"}, 3, 4, ("eps",)),
    "the rule", ("a note",), {"starting_seconds": 125.2}, "image",
    NoiseSummary(40, 17, {"steal": 11}, {"delay": 0.44}, None, "too noisy", (1.09e-5,), 0.05, ("steal",)),
)  # fmt: skip


def earlier(values):
    """The same result as the first version wrote it: with earlier names only, and without newer fields."""
    values = copy.deepcopy(values)
    for name in ("timeline", "item", "noise", "complete", "notes"):
        del values[name]
    for name in ("strict", "max_seconds", "pin", "python", "optimizer", "match_optimizer", "data", "time_input"):
        del values["settings"][name]
    del values["weights"]["normal_form"], values["inputs"]["kind"]
    for name in ("layers", "tested", "untested", "replay_problem"):
        del values["reference"][name]
    values["reference"]["weights_source"] = "probe"  # a field that no longer exists
    for row in values["rows"]:
        if row["training"]:
            row["training"]["rungs"], row["training"]["forms"] = (
                row["training"].pop("checks"),
                row["training"].pop("variants"),
            )
        else:
            del row["training"]
        if row["speed"]:
            del row["speed"]["launches"], row["speed"]["noisy"], row["speed"]["p99_seconds"]
            for sample in row["speed"]["samples"]:
                del sample["launch"], sample["dropped"]
        if row["error"]:
            del row["error"]["layers"], row["error"]["noise_ratio"], row["error"]["timed_cases"]
    return values


# Names that people did not choose with a report in mind.
HOSTILE = {
    "script": "<script>alert(1)</script>",
    "attribute": "\" onload=\"alert(1)' x='",
    "rich": "[red]red[/red] [/] [link=x]",
    "terminal": "\x1b[31mred\x1b[0m \x9b2J \x07",
    "long": "y" * 10_000,
    "right-to-left": "\u202egnp.exe \u200f\u2066",
    "markdown": "a|b `c` *d* _e_ ~~f~~ [g](h) ![i](j) <k> &amp; \\| \\ # $l$",
    "template": "{{ 7 * 7 }} {% for x in y %} ${{ 7 }}",
    "formula": '=HYPERLINK("x")',
    "lines": "a\nb\r\n\n# c\n\n```",
    "xml": "]]> <!-- -- \ufffe \x00",
    "surrogate": "\udcff",
    "mention": "@someone",
    "empty": "",
}


def hostile(name):
    """A result in which every name and sentence is this one."""
    layer = replace(LAYERS.layers[1], layer=name, kind=name, reason=name, after=name, source=name, glue=name)
    layers = replace(LAYERS, layers=(LAYERS.layers[0], layer), missing=(name,), subject=name, matched={name: name})
    layers = replace(layers, stopped=name, notes=(name,), failed={name: name})
    error = replace(FORWARD.error, reason=name, layers=layers)
    rows = (
        replace(FORWARD, subject=name, framework=name, mode=name, error=error, environment={name: {name: name}}),
        replace(FORWARD, subject=f"{name}2", speed=replace(SPEED, verdict="REFUSED", reason=name, not_counted=name)),
        replace(
            TRAINED, subject=name,
            training=replace(
                TRAINED.training, optimizer=name, variants=(name,), untested=(name,), loss=name,
                checks=(Check("update", 0, Verdict.DIFFERENT, 99.0, name, name, 15, 15),), layers=layers,
                curve=replace(TRAINED.training.curve, says=name, verdict=Verdict.DIFFERENT),
            ),
        ),
        replace(ABSENT, subject=f"{name}3", reason=name),
    )  # fmt: skip
    reference = replace(RESULT.reference, framework=name, floor=name, untested=(name,), replay_problem=name)
    return replace(
        RESULT, model=name, rows=rows, notes=(name,), reference=reference, item=name, created=name, xverify=name,
        host=replace(RESULT.host, cpu=name, system=name), inputs=replace(RESULT.inputs, kind=name),
        weights=replace(RESULT.weights, source=name, replaced=name), settings=replace(RESULT.settings, model=name),
        noise=replace(RESULT.noise, culprit=name, refusal=name, reasons={name: 3}),
    )  # fmt: skip


def unusual():
    """Name -> a result that has little, or numbers that are none."""
    odd = replace(FORWARD.error, mean_abs=math.nan, max_abs=math.inf, rel_rms=-math.inf, noise_ratio=math.inf)
    speed = replace(
        SPEED, fps=math.nan, fps_ci=(-math.inf, math.inf), ratio=math.inf, ratio_ci=(math.nan, math.inf),
        seconds_per_step=math.inf, samples=(Sample(0, 0, 1, math.nan), Sample(1, 0, 1, math.inf)), verdict="SLOWER",
    )  # fmt: skip
    curve = Curve((math.nan, math.inf), (math.nan,), (), (-math.inf,), 0, Verdict.INVALID, "")
    training = replace(TRAINED.training, curve=curve, checks=(Check("loss", 0, Verdict.INVALID, math.nan),))
    rows = (replace(FORWARD, error=odd, speed=speed, memory=Memory(math.nan)), replace(TRAINED, training=training))
    crashed = replace(ABSENT, status="crashed", reason="it fell")
    return {
        "whole": RESULT,
        "failed run": replace(RESULT, verdict=Outcome.ERROR, rows=(crashed, replace(crashed, subject="jax"))),
        "no rows": replace(RESULT, rows=(), verdict=Outcome.INCONCLUSIVE),
        "no rows, no tasks": replace(RESULT, rows=(), tasks=(), verdict=Outcome.INCONCLUSIVE),
        "no numbers": replace(RESULT, rows=rows),
        "bare": Result("m", ("forward",), Outcome.PASS, (replace(ABSENT, status="ok"),), "", "", Host(), Settings(),
                       WeightsSummary(), InputsSummary(), ReferenceSummary(), ""),
        "files": of_files(),
    }  # fmt: skip


def of_files():
    """A result of xverify check."""
    rows = (
        Row("model.onnx", "onnxruntime", "onnx", "runtime", "cpu", 2, "ok", error=Error(Verdict.EQUAL, rel_rms=1e-7)),
        Row("model.onnx", "onnxruntime", "onnx", "conversion", "cpu", 2, "ok", error=FORWARD.error),
    )
    settings = Settings(task="check", model="/a/model.onnx", reference="/a/ref.onnx")
    return replace(RESULT, model="model.onnx", tasks=("runtime", "conversion"), rows=rows, settings=settings)
