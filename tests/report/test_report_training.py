import io
import math
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from rich.console import Console

from xverify.errors import UsageError
from xverify.report import curves
from xverify.report.curves import in_terminal
from xverify.report.terminal import WIDE
from xverify.report.training import CHECKS, training_tables
from xverify.results.conditions import Host, InputsSummary, ReferenceSummary, Settings, WeightsSummary
from xverify.results.records import Check, Curve, Result, Row, Training
from xverify.workload.optimizers import VARIANTS

ADAM = "adam, lr 0.001, betas 0.9 and 0.999, eps 1e-08"
STEPS = 20
LOSSES = tuple(2.3 * 0.9**step for step in range(STEPS))


def row(subject="torch:eager", *checks, **training):
    framework, _, mode = subject.partition(":")
    return Row(
        subject, framework, mode, "train", "cpu", 8, "ok", training=Training(ADAM, checks=tuple(checks), **training)
    )


def forward_row():
    return Row("torch:eager", "torch", "eager", "forward", "cpu", 8, "ok")


def curve(losses=LOSSES, verdict="EQUAL", says="", judged=STEPS, replicas=STEPS):
    low = tuple(loss * (1 - 1e-6 * 2**step) for step, loss in enumerate(LOSSES[:replicas]))
    high = tuple(loss * (1 + 1e-6 * 2**step) for step, loss in enumerate(LOSSES[:replicas]))
    return Curve(tuple(losses), LOSSES, low, high, judged, verdict, says)


def equal(step=0, ratio=1.2):
    return [Check(name, step, "EQUAL", ratio) for name in CHECKS if name != "curve"]


def printed(*rows, width=WIDE, colours=False):
    console = Console(file=io.StringIO(), width=width, highlight=False, force_terminal=colours)
    for renderable in training_tables(rows):
        console.print(renderable, soft_wrap=True)
    return console.file.getvalue()


def cells(text, subject):
    """Name of a column -> cell of a subject in the printed table."""
    head = next(line for line in text.splitlines() if line.startswith("subject"))
    line = next(line for line in text.splitlines() if line.startswith(f"{subject} "))
    starts = [head.index(name) for name in head.split()] + [WIDE]
    return {name: line[a:b].strip() for name, a, b in zip(head.split(), starts, starts[1:])}


# -- the table --------------------------------------------------------------------------------------------------------


def test_nothing_is_printed_for_rows_without_training():
    assert list(training_tables([])) == []
    assert list(training_tables([forward_row(), row()])) == []


def test_a_right_row_has_every_check_in_order_and_no_sentence():
    text = printed(row("torch:eager", *reversed(equal()), curve=curve()))
    assert text.startswith(f"training-parity checks with {ADAM}: ")
    found = cells(text, "torch:eager")
    assert list(found) == ["subject", *CHECKS]
    assert {found[name] for name in CHECKS if name != "curve"} == {"EQUAL 1.2"}
    assert found["curve"] == "EQUAL"
    assert text.splitlines()[-1].startswith("torch:eager ")  # nothing is printed after the table


@pytest.mark.parametrize(
    ("verdict", "ratio", "cell", "colour"),
    [
        ("IDENTICAL", 0.0, "IDENTICAL 0", "32"),
        ("EQUAL", 1.25, "EQUAL 1.2", "32"),
        ("UNTESTED", None, "UNTESTED", "33"),
        ("DRIFT", 12.4, "DRIFT 12", "33"),
        ("DIFFERENT", 153.0, "DIFFERENT 153", "1;31"),
        ("DIFFERENT", 5e4, "DIFFERENT 50,000", "1;31"),
        ("INVALID", math.inf, "INVALID ∞", "1;31"),
        ("INVALID", math.nan, "INVALID NaN", "1;31"),
    ],
)
def test_a_cell_has_the_worst_verdict_over_the_steps(verdict, ratio, cell, colour):
    checks = [Check("update", 0, "IDENTICAL", 0.0), Check("update", 1, verdict, ratio), Check("loss", 2, "EQUAL", 1.0)]
    assert cells(printed(row("jittor", *checks)), "jittor")["update"] == cell
    assert f"\x1b[{colour}m{cell}\x1b[0m" in printed(row("jittor", *checks), colours=True)


def test_the_ratio_is_the_worst_of_the_worst_verdict():
    checks = [Check("update", step, "DIFFERENT", ratio) for step, ratio in enumerate((50.0, 60.0, None))]
    text = printed(row("jittor", *checks, Check("update", 3, "DRIFT", 900.0, difference="eps-hat")))
    assert cells(text, "jittor")["update"] == "DIFFERENT 60"
    assert "the worst of steps 0, 1, 2, 3" in text
    many = [Check("update", step, "EQUAL", 1.0) for step in range(40)]
    assert "each cell is the worst of steps 0 to 39" in printed(row("jittor", *many))
    assert "the worst of steps 0, 1, 2, 3, 4, 5, 7" in printed(row("jittor", *many[:6], many[7]))


def test_a_missing_check_is_a_dash_and_an_unused_check_has_no_column():
    text = printed(row("torch:eager", *equal()), row("jittor", Check("loss", 0, "EQUAL", 1.0)))
    assert cells(text, "jittor")["statistics"] == "-"
    assert "curve" not in cells(text, "jittor")


def test_a_narrow_table_has_one_column_for_each_subject():
    rows = [row(subject, *equal(), curve=curve()) for subject in ("torch:eager", "jittor", "tensorflow:graph")]
    table = printed(*rows, width=80).splitlines()[2:]
    assert all(len(line) <= 80 for line in table)
    assert table[0].split() == ["check", "torch:eager", "jittor", "tensorflow:graph"]
    assert [line.split()[0] for line in table[2 : 2 + len(CHECKS)]] == list(CHECKS)
    assert "…" not in "".join(table)


# -- the sentences ----------------------------------------------------------------------------------------------------


def test_the_first_broken_check_is_named():
    says = "fc1.weight: its change is 5e+04 x its floor: behaves as eps=1e-07; it should be 1e-08"
    drifts = Check("gradients", 0, "DRIFT", 5.0, "fc1.weight: 5 x the noise of all layers")
    broken = [Check("update", step, "DIFFERENT", 5e4, says) for step in (0, 1)]
    text = printed(row("tensorflow:graph", drifts, *broken))
    assert f"  tensorflow:graph: update, step 0: {says}\n" in text
    assert "step 1" not in text
    assert "noise of all layers" in printed(row("tensorflow:graph", drifts))


def test_a_broken_check_without_a_reason_is_printed_with_its_ratio():
    assert "  jittor: loss, step 2: DIFFERENT: 77 × its noise floor\n" in printed(
        row("jittor", Check("loss", 2, "DIFFERENT", 77.0))
    )
    assert "  jittor: weights, step 0: INVALID\n" in printed(row("jittor", Check("weights", 0, "INVALID")))


def test_a_named_difference_is_yellow_and_explained_once():
    checks = [Check("update", step, "DRIFT", 2e3, f"eps-hat: {VARIANTS['eps-hat']}", "eps-hat") for step in (0, 1)]
    text = printed(row("tensorflow:graph", *equal(), *checks, variants=("eps-hat",)))
    assert cells(text, "tensorflow:graph")["update"] == "DRIFT eps-hat"
    assert text.count(f"  tensorflow:graph: eps-hat: {VARIANTS['eps-hat']}\n") == 1
    assert "step 0:" not in text
    assert "\x1b[33mDRIFT eps-hat\x1b[0m" in printed(row("jittor", *checks), colours=True)


def test_a_difference_without_a_known_name_is_explained_by_its_check():
    both = Check("update", 0, "DRIFT", 9.0, "eps-hat: as above; one bias: half as far, so it says", "eps-hat, one bias")
    biased = Check("statistics", 0, "DRIFT", 9.0, "takes the biased variance: torch's is another", "biased variance")
    text = printed(row("tensorflow:graph", both, biased))
    assert cells(text, "tensorflow:graph") == {
        "subject": "tensorflow:graph",
        "update": "DRIFT eps-hat, one bias",
        "statistics": "DRIFT biased variance",
    }
    assert f": eps-hat: {VARIANTS['eps-hat']}\n" in text
    assert ": one bias: half as far, so it says\n" in text
    assert ": biased variance: takes the biased variance: torch's is another\n" in text


def test_drift_without_a_name_is_worse_than_named_drift():
    checks = [Check("update", 0, "DRIFT", 9e3, "…", "eps-hat"), Check("update", 1, "DRIFT", 7.0, "fc: 7 x its floor")]
    text = printed(row("jittor", *checks))
    assert cells(text, "jittor")["update"] == "DRIFT 7"
    assert "update, step 1: fc: 7 x its floor" in text


def test_a_formula_variant_without_effect_is_mentioned():
    text = printed(row("tensorflow:graph", *equal(), variants=("eps-hat",)))
    assert f"eps-hat, which did not show in these steps: {VARIANTS['eps-hat']}" in text


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (
            ("b",),
            "1 parameter UNTESTED as a whole: b: rounding alone changes its gradient by over 1%",
        ),
        (
            tuple("abcd"),
            "4 parameters UNTESTED as a whole: a, b, c, d: rounding alone changes their gradient by over 1%",
        ),
        (
            tuple("abcdef"),
            "6 parameters UNTESTED as a whole: a, b, c, d, …: rounding alone changes their gradient by over 1%",
        ),
    ],
)
def test_untested_parameters_are_listed(names, sentence):
    assert f"  torch:eager: {sentence}; the backward check" in printed(row("torch:eager", *equal(), untested=names))


def test_untested_checks_are_printed_with_their_reason():
    checks = [
        Check(name, 0, "UNTESTED", says="no layer could be captured", known=6) for name in ("forward", "backward")
    ]
    assert "  jittor: forward, backward UNTESTED: no layer could be captured\n" in printed(row("jittor", *checks))


def test_partial_layer_checks_and_disabled_dropout_are_mentioned():
    checks = [
        Check("forward", 0, "EQUAL", 1.0, compared=5, known=6),
        Check("backward", 0, "EQUAL", 1.0, compared=6, known=6),
    ]
    text = printed(row("jittor", *checks, dropout_disabled=("drop1", "drop2")))
    assert "  jittor: forward: 5 of 6 layers checked\n" in text
    assert "backward:" not in text
    assert "  jittor: dropout disabled in drop1, drop2\n" in text


def test_a_sentence_that_subjects_share_is_printed_once():
    rows = [row(subject, *equal(), dropout_disabled=("drop",)) for subject in ("torch:eager", "jittor", "numpy")]
    assert printed(*rows).count("dropout disabled") == 1
    assert "  every subject: dropout disabled in drop\n" in printed(*rows)
    assert "  torch:eager, jittor: dropout disabled in drop\n" in printed(*rows[:2], row("numpy", *equal()))


def test_the_report_says_after_which_step_a_curve_is_not_judged():
    # At step 9, the two ends of the band are 2 · 10⁻⁶ · 2⁹ of the loss apart.
    sentence = (
        "curve judged for 9 of 20 steps: at step 9 rounding alone drives replicas 0.001 of the loss apart, too far to tell from "
        "what training has changed; later steps are not compared"
    )
    assert f"  jittor: {sentence}\n" in printed(row("jittor", *equal(), curve=curve(judged=9)))
    ended = printed(row("jittor", *equal(), curve=curve(judged=12, replicas=12)))
    assert "curve judged for 12 of 20 steps: at step 12 rounding alone drives replicas apart" in ended
    assert "judged" not in printed(row("jittor", *equal(), curve=curve()))


@pytest.mark.parametrize("verdict", ["DRIFT", "INVALID"])
def test_a_wrong_curve_is_printed_with_its_reason(verdict):
    text = printed(row("jittor", curve=curve(verdict=verdict, says="the loss is nan at step 3: it begins in fc")))
    assert cells(text, "jittor") == {"subject": "jittor", "curve": verdict}
    assert "  jittor: loss curve: the loss is nan at step 3: it begins in fc\n" in text


def test_brackets_are_printed_and_not_read_as_markup():
    says = "layers[0].weight [/red] differs"
    assert says in printed(row("jittor", Check("update", 0, "DIFFERENT", 9.0, says)))


# -- curves -----------------------------------------------------------------------------------------------------------


CONDITIONS = Host(), Settings(), WeightsSummary(), InputsSummary(), ReferenceSummary()


def result(*rows):
    return Result("mlp", ("train",), "PASS", rows, "now", "0", *CONDITIONS, "rule")


def diverging():
    return curve([2.3, 9.0, 1e30, math.nan], "INVALID")


def test_without_a_curve_nothing_is_drawn(tmp_path):
    assert in_terminal([]) == in_terminal([forward_row(), row("jittor", *equal())]) == ""
    with pytest.raises(UsageError, match="no subject of mlp has a loss curve"):
        curves.draw(result(forward_row(), row("jittor", *equal())), tmp_path / "curve.png")
    assert list(tmp_path.iterdir()) == []


def test_curves_in_the_terminal():
    rows = [forward_row(), row("torch:eager", curve=curve(judged=9)), row("jittor", curve=diverging())]
    text = in_terminal(rows, width=90, height=15, plain=True)
    lines = text.splitlines()
    assert "\x1b" not in text
    assert max(map(len, lines)) <= 90
    assert ADAM in lines[0]
    assert "┊" in lines[2]
    assert lines[14].split() == ["0", "5", "10", "15"]
    legend = "\n".join(lines[15:])
    assert "o torch:eager: EQUAL" in legend
    assert "x jittor: INVALID, not finite at step 3" in legend
    assert "┊ judged for 9 of 20 steps" in legend
    assert "1e+30" not in text  # an axis up to it would hide the other curves


def test_curves_that_coincide_are_all_visible():
    rows = [row(subject, curve=curve()) for subject in ("a", "b", "c", "d")]
    picture = "\n".join(in_terminal(rows, plain=True).splitlines()[1:19])
    assert {mark for mark in "ox+*" if mark in picture} == set("ox+*")


def test_curves_have_colours_unless_plain_and_are_drawn_the_same_twice():
    rows = [row("torch:eager", curve=curve())]
    coloured = in_terminal(rows)
    assert "\x1b[38;5;10m" in coloured
    assert coloured == in_terminal(rows)
    assert in_terminal(rows, plain=True) == in_terminal(rows, plain=True)


@pytest.mark.parametrize("losses", [(math.nan,), (math.inf,), (2.3,), (), (0.0, -1.0, 1e300)])
def test_curves_of_every_kind_are_drawn(losses, tmp_path):
    one = row("jittor", curve=curve(losses, "INVALID"))
    alone = row("jittor", curve=Curve(losses, losses, losses, losses, 1, "INVALID"))
    for index, each in enumerate((one, alone)):
        assert "jittor: INVALID" in in_terminal([each], plain=True)
        curves.draw(result(each), tmp_path / f"{index}.png")


def test_a_picture_as_png(tmp_path):
    file = tmp_path / "curve.PNG"
    curves.draw(result(row("torch:eager", curve=curve()), row("jittor", curve=diverging())), file)
    assert file.read_bytes().startswith(b"\x89PNG")


def test_a_picture_as_svg_contains_its_labels(tmp_path):
    file = tmp_path / "curve.svg"
    curves.draw(result(row("torch:eager", curve=curve(judged=9)), row("jittor", curve=diverging())), file)
    text = file.read_text()
    assert ElementTree.fromstring(text).tag.endswith("svg")
    words = (f"mlp, {ADAM}", "step", "loss", "reference", "torch:eager: EQUAL", "jittor: INVALID, not finite at step 3")
    for word in (*words, "judged for 9 of 20 steps", "band of the reference's replicas"):
        assert f"<!-- {word} -->" in text


def test_another_suffix_is_refused_and_the_known_ones_are_named():
    for name in ("curve.pdf", "curve"):
        with pytest.raises(UsageError, match=rf"{name}: .*\.png or \.svg"):
            curves.draw(result(row(curve=curve())), Path(name))


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        curves.check(tmp_path / "none" / "curve.png")


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "curve.png").mkdir()
    with pytest.raises(UsageError, match=r"curve.png is a folder"):
        curves.draw(result(row(curve=curve())), tmp_path / "curve.png")


def test_without_matplotlib_the_message_says_how_to_install_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match=r"matplotlib is not installed: pip install .*\[plot\]'"):
        curves.draw(result(row(curve=curve())), tmp_path / "curve.png")
