"""Losses in a spec: their settings, how they fit outputs and targets, and the targets that are drawn for them."""

from dataclasses import replace

import numpy as np
import pytest

from xverify.errors import Failed, SpecError, Unsupported, UsageError
from xverify.workload import datasets, probe
from xverify.workload.loss_mistakes import wrong_losses
from xverify.workload.losses import Loss, Objective
from xverify.workload.objective import objective_of, terms_of
from xverify.workload.spec import ModelFolder, ModelSpec, TensorSpec

LOGITS = TensorSpec(("N", 6, 5))
TAGS = TensorSpec(("N", 6), "int64", low=0, high=5)
PLACE = TensorSpec(("N", 4))


def spec(loss=(), targets=None, **outputs):
    return ModelSpec(
        inputs={"x": TensorSpec(("N", 6, 8))}, outputs=outputs or {"y": LOGITS}, targets=targets or {}, loss=loss
    )


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Loss("crossentropy"), "unknown loss 'crossentropy'; did you mean 'cross_entropy'?"),
        (lambda: Loss("mse", reduction="avg"), "mse: unknown reduction 'avg'"),
        (lambda: Loss("mse", delta=2.0), "mse has no delta: it is a setting of huber"),
        (lambda: Loss("mse", smoothing=0.1), "Loss takes no 'smoothing'; did you mean 'label_smoothing'?"),
        (lambda: Loss("huber", delta=0.0), "huber: delta is 0: it must be above 0"),
        (lambda: Loss("cross_entropy", label_smoothing=1.0), "label_smoothing is 1: it must be from 0 to below 1"),
        (lambda: Loss("mse", weight=0.0), "mse: weight is 0"),
        (lambda: Loss("cross_entropy", class_weights=(1, -1)), "each must be 0 or more"),
        (lambda: spec(3), "loss takes a name, a Loss, or several of them: not a int"),
        (lambda: spec("mse"), "loss mse needs a target: write targets="),
        (
            lambda: spec(Loss("cross_entropy", "logits"), {"t": TAGS}),
            "names the output 'logits'. Known: y",
        ),
        (
            lambda: spec(Loss("cross_entropy", target="tag"), {"tags": TAGS}),
            "names the target 'tag'; did you mean 'tags'?",
        ),
        (lambda: spec("mse", {"a": PLACE, "b": PLACE}, y=PLACE), "loss mse names no target, and the model has 2"),
        (
            lambda: spec("mse", {"t": PLACE}),
            "the target has shape ('N', 4), and the output ('N', 6, 5): they must be equal",
        ),
        (
            lambda: spec("mse", {"t": TensorSpec(("N", 4, 2, 2))}, y=TensorSpec(("N", 4, 2, 2), layout="NCHW")),
            "the target has layout None, and the output NCHW",
        ),
        (lambda: spec("cross_entropy", {"t": replace(TAGS, dtype="float32")}), "class numbers are integers"),
        (lambda: spec("cross_entropy", {"t": replace(TAGS, shape=("N",))}), "it must be ('N', 6), the output's"),
        (
            lambda: spec("cross_entropy", {"t": replace(TAGS, high=7)}),
            "the target takes values from 0 to 6, and 5 is no class: there are the classes 0 to 4",
        ),
        (lambda: spec("bce", {"t": PLACE}, y=PLACE), "give the target a range within low=0, high=1"),
        (lambda: spec("kl_div", {"t": PLACE}, y=PLACE), "give the target low=0, high=1"),
        (
            lambda: spec("ctc", {"t": TAGS}),
            "0 is no class: there are the classes 0 to 4, of which 0 is the blank",
        ),
        (lambda: spec(Loss("cross_entropy", class_weights=(1, 2))), "has 2 class_weights, and 5 classes"),
        (lambda: spec((), {"x": PLACE}), "targets['x'] has the name of an input"),
        (lambda: spec((), {"t": TensorSpec(("N",), "int64")}), "targets['t'] is int64: give low and high"),
    ],
)
def test_what_does_not_fit_is_one_clear_line(make, says):
    with pytest.raises(SpecError) as raised:
        make()
    assert says in str(raised.value)
    assert "\n" not in str(raised.value)


def test_names_are_completed_and_aliases_resolved():
    terms = terms_of(
        spec([Loss("huber", "a", "t", delta=0.5), Loss("contrastive", "a", "b")], {"t": PLACE}, a=PLACE, b=PLACE)
    )
    assert [(term.name, term.output, term.target) for term in terms] == [("huber", "a", "t"), ("info_nce", "a", "b")]
    assert terms_of(spec("cross-entropy")) == (Loss("cross_entropy", "y", "target"),)
    assert Objective(terms).says() == "huber of 'a', delta 0.5 + info_nce of 'a'"


def test_targets_are_drawn_from_the_seed_and_some_labels_are_ignored():
    made = spec(Loss("cross_entropy", ignore_index=-100), {"t": TAGS})
    arrays = datasets.synthetic(made, 8, 0, 2).arrays
    assert set(arrays) == {"0/x", "0/t", "1/x", "1/t"}
    ignored = arrays["0/t"] == -100
    assert ignored.sum() == 48 // probe.IGNORED
    assert ((arrays["0/t"][~ignored] >= 0) & (arrays["0/t"][~ignored] < 5)).all()
    assert np.array_equal(datasets.synthetic(made, 8, 0, 2).arrays["1/t"], arrays["1/t"])
    assert not np.array_equal(arrays["0/t"], arrays["1/t"])
    own = spec((), {"t": replace(TAGS, ignore_index=9)})
    assert (probe.targets(own, 8, 0, 1)["0/t"] == 9).any()
    labels = datasets.synthetic(spec(Loss("cross_entropy", ignore_index=-1)), 8, 0, 1).arrays["0/target"]
    assert (labels == -1).any()
    assert (labels >= 0).any()
    few = probe.first_items(arrays, made, 2)
    assert few["1/t"].shape == (2, 6)


def test_data_files_have_no_targets_of_a_spec(tmp_path):
    for name in ("train-images-idx3-ubyte", "train-labels-idx1-ubyte"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UsageError, match=r"spec.py names the targets t: .*leave out --data"):
        datasets.read(tmp_path, spec("cross_entropy", {"t": TAGS}), 4, 0, 1)


FUNCTION = "def loss(outputs, targets):\n    return 0\n"


@pytest.mark.parametrize(
    ("torch", "jittor", "loss", "found"),
    [
        ("", "", (), None),
        (FUNCTION, FUNCTION, (), True),
        (FUNCTION, "from .common import loss\n", (), True),
        (FUNCTION, "loss = mean\n", (), True),
        ("", FUNCTION, "cross_entropy", True),
        (FUNCTION, "", "cross_entropy", False),
        (FUNCTION, "", (), "torch.py defines loss(outputs, targets), and jittor.py does not"),
        ("", FUNCTION, (), "jittor.py defines loss(outputs, targets), and neither torch.py nor spec.py says"),
    ],
)
def test_the_file_says_the_loss_or_the_spec_does(tmp_path, torch, jittor, loss, found):
    (tmp_path / "torch.py").write_text(torch)
    (tmp_path / "jittor.py").write_text(jittor)
    folder = ModelFolder("it", tmp_path, spec(loss))
    if isinstance(found, str):
        with pytest.raises(Unsupported) as raised:
            objective_of(folder, "jittor")
        assert str(raised.value).startswith(found)
    else:
        objective = objective_of(folder, "jittor")
        assert objective is None if found is None else objective.own is found


def test_a_file_that_is_no_python_is_said_to_be_that(tmp_path):
    (tmp_path / "torch.py").write_text("def loss(outputs, targets): ...\n")
    (tmp_path / "jittor.py").write_text("import jittor\ndef loss(outputs targets): ...\n")
    with pytest.raises(Failed, match=r"^jittor.py:2: SyntaxError: "):
        objective_of(ModelFolder("port", tmp_path, spec(targets={"t": TensorSpec(("N", 2))})), "jittor")


def test_targets_without_a_loss_are_class_numbers(tmp_path):
    objective = objective_of(ModelFolder("it", tmp_path, spec((), {"t": TAGS})), "torch")
    assert objective == Objective((Loss("cross_entropy", "y", "t"),), {"t": None})
    with pytest.raises(SpecError, match="class numbers are integers"):
        objective_of(ModelFolder("it", tmp_path, spec((), {"t": PLACE}, y=PLACE)), "torch")


def test_every_mistake_changes_the_loss_that_it_names():
    smoothed = Loss("cross_entropy", "y", "t", label_smoothing=0.1, ignore_index=-1, class_weights=(1, 2))
    wrong = {each.kind: each.objective.terms[0] for each in wrong_losses(Objective((smoothed,)))}
    assert wrong["label smoothing missing"] == replace(smoothed, label_smoothing=0.0)
    assert wrong["class weights missing"].class_weights == ()
    assert wrong["wrong ignored index"].variant == "ignored is class 0"
    assert wrong["loss summed, not averaged"].reduction == "sum"
    assert {"softmax applied twice", "from_logits forgotten", "ignored positions counted"} <= set(wrong)
    two = Objective((Loss("huber", "a", "t", delta=0.5), Loss("mse", "b", "u", weight=0.25)))
    kinds = {each.kind: each for each in reversed(list(wrong_losses(two)))}  # of a kind, the first is kept
    assert kinds["other delta, a"].says == "huber of 'a': it has delta 1, not 0.5"
    assert kinds["weight missing, b"].objective.terms[1].weight == 1
    assert kinds["term missing, a"].objective.terms == two.terms[1:]
