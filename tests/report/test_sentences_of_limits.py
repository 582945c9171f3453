"""The lines on what a run does not show: every fact is there when it holds, and absent otherwise."""

from dataclasses import replace

import pytest
from helpers.sampleresults import RESULT, of_files

from xverify.report import limits
from xverify.results.conditions import InputsSummary, NoiseSummary, ReferenceSummary, WeightsSummary
from xverify.results.layers import Layers
from xverify.results.records import Error

WHOLE = Layers(compared=3, known=3)
ROWS = tuple(replace(row, task="forward", training=None, error=Error("EQUAL", layers=WHOLE)) for row in RESULT.rows[:2])
CLEAN = replace(
    RESULT,
    tasks=("forward",),
    rows=ROWS,
    weights=WeightsSummary("sha256:0", tensors=1, parameters=1, source="trained.pt"),
    inputs=InputsSummary(cases=4, kind="random"),
    reference=ReferenceSummary("torch", "float64", layers=3, tested=5),
    noise=NoiseSummary(rounds=8),
    receipts={},
)
NOISY = NoiseSummary(rounds=8, dropped=8, refusal="8 of 8 rounds were noisy")


def text_of(lines):
    """The facts, each with a semicolon at its end."""
    return " ".join(line[8:] + ";" for line in lines)


def test_a_run_without_limits_names_its_inputs_and_weights_alone():
    untimed = replace(CLEAN, rows=tuple(replace(row, speed=None) for row in ROWS))
    assert limits.of_run(untimed) == [
        "Limits: 4 input cases (random)",
        "        trained.pt",
        "        no subject was timed",
        "        --details prints more",
    ]


@pytest.mark.parametrize(
    ("changes", "clause"),
    [
        ({"reference": replace(CLEAN.reference, precision="float32")}, "the reference is not in float64;"),
        ({"reference": replace(CLEAN.reference, precision="mixed")}, "the reference is not in float64 in every part;"),
        (
            {"reference": replace(CLEAN.reference, untested=("a", "b"))},
            "a fault in 2 of 7 weights and constants would not",
        ),
        ({"reference": replace(CLEAN.reference, layers=0)}, "no layer judged by itself;"),
        ({"reference": replace(CLEAN.reference, layers=0, replay_problem="why")}, "no layer judged by itself: why;"),
        (
            {"rows": (ROWS[0], replace(ROWS[1], error=Error("EQUAL", layers=Layers(compared=2, known=3))))},
            "every layer judged by itself in 1 of 2 subjects;",
        ),
        ({"noise": NOISY}, "TOO NOISY for a verdict on speed: 8 of 8 rounds were noisy;"),
        ({"inputs": InputsSummary(cases=1, kind="recorded")}, "1 input case (recorded);"),
    ],
)
def test_each_limit_is_a_line(changes, clause):
    assert clause not in text_of(limits.of_run(CLEAN))
    assert clause in text_of(limits.of_run(replace(CLEAN, **changes)))


def test_what_both_tasks_share_is_told_once():
    train = replace(CLEAN, tasks=("train",), noise=NOISY, inputs=InputsSummary(cases=3, kind="images"))
    receipts = {"forward": CLEAN.receipt(), "train": train.receipt()}
    rows = (*ROWS, *(replace(row, task="train") for row in ROWS))
    text = text_of(limits.of_run(replace(CLEAN, tasks=("forward", "train"), rows=rows, receipts=receipts)))
    assert "forward: 4 input cases (random);" in text
    assert "train: 3 batches (images);" in text
    assert text.count("trained.pt;") == 1
    assert text.count("TOO NOISY") == 1
    assert "train: TOO NOISY" in text


def test_a_check_names_its_reference_and_the_files_whose_nodes_were_not_all_judged():
    result = of_files()
    assert f"compared with {result.reference.framework};" in text_of(limits.of_check(result))

    def with_nodes(layers):
        return replace(result, rows=tuple(replace(row, error=Error("EQUAL", layers=layers)) for row in result.rows))

    clause = f"{result.rows[0].subject}: 2 of 3 nodes judged by themselves"
    assert clause not in text_of(limits.of_check(with_nodes(WHOLE)))
    assert clause in text_of(limits.of_check(with_nodes(Layers(compared=2, known=3))))
