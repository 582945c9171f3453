"""The sentence on a mistake in a training step of one's own: steps of nine kinds, each with mistakes of its port."""

import pytest
from helpers.ownsteps import folder, judging
from helpers.stepmistakes import STEPS, wrong
from helpers.stepsoutside import OUTSIDE

pytestmark = pytest.mark.slow

SUBJECT = "torch-port:eager"
KINDS = {**STEPS, **OUTSIDE}
# One mistake of each place where a step can be wrong. The others are tried without starting the command line each time.
SAMPLE = {
    "mlp": "schedule ahead",
    "cnn": "no bias correction",
    "block": "clip each",
    "pairs": "weight 0.3",
    "around": "radius",
    "inner": "fewer steps",
    "copy": "itself",
    "sequences": "blank",
    "signs": "adamw",
}


@pytest.mark.parametrize("kind", SAMPLE)
def test_the_command_line_names_a_mistake(xverify, tmp_path, kind):
    files, mistakes = KINDS[kind]
    mistake = next(each for each in mistakes if each.name == SAMPLE[kind])
    done = xverify(
        "run", folder(tmp_path / kind, wrong(files, mistake)), "--task", "train", "--no-timing", "--subjects", SUBJECT
    )
    assert done.code == 1, done.out + done.err
    reason = done.row(SUBJECT)["error"]["reason"]
    for clause in mistake.says:
        assert clause in reason


@pytest.mark.parametrize("kind", [pytest.param(kind, marks=pytest.mark.long) for kind in KINDS])
def test_each_mistake_is_named_and_none_is_named_where_the_port_is_right(tmp_path, kind):
    files, mistakes = KINDS[kind]
    assert mistakes
    with judging(tmp_path, {**files, "torch-port": files["torch"]}, SUBJECT) as judged:
        assert judged(len(mistakes), ("", "")).verdict == "EQUAL"
        for number, mistake in enumerate(mistakes):
            error = judged(number, (files["torch"], wrong(files, mistake)["torch-port"]))
            print(f"{kind}, {mistake.name}: {error.verdict}: {error.reason}")
            assert error.verdict == "DIFFERENT"
            for clause in mistake.says:
                assert clause in error.reason
