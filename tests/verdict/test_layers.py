"""Findings are summarised by layer, and layers with different names are matched."""

from dataclasses import replace

from xverify.verdict.findings import Explanation, Finding, ReplayReport
from xverify.verdict.layers import merged, summarise
from xverify.verdict.matching import Place, match


def reply(*findings, compared, explained=None):
    return ReplayReport(findings, compared, explained=explained or {})


def found(layer, what, ratio, **more):
    return Finding(layer, 0, 0, "Linear", what, ratio, ratio, **more)


def test_a_layer_has_the_result_of_its_worst_call():
    layers = summarise(
        reply(found("a", "input", 0.0), found("a", "output", 0.4), found("a", "output", 99.0), compared={"a": 2}),
        ["a", "b"],
        "jittor",
    )
    assert layers.layers[0].ratio == 99.0
    assert layers.layers[0].calls == 2
    assert layers.verdict == "DIFFERENT"
    assert layers.first.layer == "a"
    assert (layers.compared, layers.known, layers.missing) == (1, 2, ("b",))


def test_the_first_layer_with_the_worst_verdict_is_named():
    layers = summarise(
        reply(found("a", "output", 5.0), found("b", "input", 500.0), found("c", "output", 900.0), compared=dict.fromkeys("abc", 1)),
        ["a", "b", "c"], "jittor",
    )  # fmt: skip
    assert layers.first.layer == "b"
    assert layers.describe(layers.first).startswith(
        "Fault between `a` and `b`: the input of `b` is already wrong, 500 x"
    )
    output = replace(layers.first, layer="(output) y")
    assert output.says("b").startswith("Fault between `b` and the output `y`: the output `y` is already wrong, 500 x")
    assert layers.first.says().startswith("Fault before `b`: the input of `b` is already wrong, 500 x")


def of_case(case, *ratios, **more):
    """The record of layers a, b, ... with these ratios in an input case; a layer whose ratio is None was not called in it."""
    called = {name: ratio for name, ratio in zip("abc", ratios) if ratio is not None}
    report = reply(*(found(name, "output", ratio) for name, ratio in called.items()), compared=dict.fromkeys(called, 1))
    layers = summarise(replace(report, **more), ["a", "b", "c"], "jittor")
    return replace(layers, layers=tuple(replace(each, case=case) for each in layers.layers), cases=(case,))


def test_layers_of_several_cases_have_their_worst_finding():
    layers = merged([of_case(0, 0.5, None, 900.0), of_case(2, 700.0, 1.0, 300.0), of_case(3, 0.2, 50.0, 0.1)])
    assert [(each.layer, each.ratio, each.case) for each in layers.layers] == [
        ("a", 700.0, 2),
        ("b", 50.0, 3),
        ("c", 900.0, 0),
    ]
    assert (layers.first.layer, layers.verdict) == ("a", "DIFFERENT")
    assert layers.describe(layers.first).endswith("(input case 2)")
    assert (layers.compared, layers.missing, layers.uncalled, layers.complete) == (3, (), (), True)
    assert (layers.cases, layers.equal_in) == ((0, 2, 3), ())


def test_a_fault_of_the_first_case_is_told_without_a_case():
    layers = merged([of_case(0, 700.0, 1.0, 1.0), of_case(2, 900.0, 1.0, 1.0)])
    assert (layers.first.ratio, layers.first.case) == (900.0, 0)
    assert not layers.describe(layers.first).endswith("(input case 2)")


def test_layers_of_a_case_in_which_all_are_equal_excuse_that_case():
    right = [of_case(0, 1.0, None, 1.0), of_case(1, 1.0, 1.0, 1.0)]
    assert merged(right).equal_in == (0, 1)
    wrong = [*right, of_case(2, 1.0, 90.0, 1.0), of_case(3, 1.0, 1.0, 1.0, stopped="at b")]
    assert merged(wrong).equal_in == (0, 1)
    assert merged(wrong).stopped == "at b"


def test_another_precision_is_drift():
    explained = {"a": Explanation("TF32 arithmetic", "rounds to TF32", rounding=True)}
    rounded = found("a", "output", 900.0, rounding=explained["a"])
    layers = summarise(reply(rounded, compared={"a": 1}, explained=explained), ["a"], "jittor")
    assert layers.verdict == "DRIFT"
    assert layers.first.says() == "a: rounds to TF32"


def test_another_precision_explains_one_finding_and_no_other():
    rounding = Explanation("TF32 arithmetic", "rounds to TF32", rounding=True)
    explained, wrong, given = (found("a", "output", ratio) for ratio in (900.0, 700.0, 500.0))
    explained = replace(explained, rounding=rounding)
    for other in (wrong, replace(given, what="input"), replace(wrong, reason="another shape")):
        layers = summarise(reply(explained, other, compared={"a": 2}, explained={"a": rounding}), ["a"], "jittor")
        assert (layers.verdict, layers.rounding, layers.first.explanation) == ("DIFFERENT", False, None)
    assert layers.first.faulty == "output"
    eps = Explanation("eps", "behaves as eps=0.001")
    both = reply(replace(given, what="input"), found("a", "output", 300.0), compared={"a": 1}, explained={"a": eps})
    first = summarise(both, ["a"], "jittor").first
    assert first.says().startswith("Fault before `a`: the input of `a` is already wrong, 500 x")
    assert first.says().endswith("; besides, a behaves as eps=0.001")


def test_layers_are_complete_when_every_call_of_every_called_layer_was_compared():
    def layers(compared, missing=(), stopped=""):
        report = ReplayReport((), dict.fromkeys(compared, 1), dict.fromkeys(missing, 1), stopped=stopped)
        return summarise(report, ["a", "b"], "jittor")

    assert layers("ab").complete
    assert layers("a").complete, "b is not called"
    assert layers("a").uncalled == ("b",)
    for incomplete in (layers("a", "b"), layers("ab", "b"), layers("ab", stopped="it ended"), layers("")):
        assert not incomplete.complete


def test_layers_match_by_order_shape_and_kind():
    image, small = (2, 8, 4, 4), (2, 8, 1, 1)
    mine = [
        Place("conv1", "Conv2d", (2, 3, 4, 4), image), Place("bn1", "BatchNorm2d", image, image),
        Place("relu", "ReLU", image, image),
        Place("pool", "AdaptiveAvgPool2d", image, small), Place("flatten", "Flatten", small, (2, 8)),
        Place("fc", "Linear", (2, 8), (2, 10)),
    ]  # fmt: skip
    image = (2, 4, 4, 8)
    theirs = [
        Place("stem", "Conv2D", (2, 4, 4, 3), image), Place("norm", "BatchNormalization", image, image),
        Place("average", "GlobalAveragePooling2D", image, (2, 8)),  # it stands for two layers of the reference, and matches neither
        Place("dense", "Dense", (2, 8), (2, 10)),
    ]  # fmt: skip
    assert match(mine, theirs, channels_last=True).names == {"conv1": "stem", "bn1": "norm", "fc": "dense"}
    assert match(mine, theirs, channels_last=False).names == {"fc": "dense"}
    assert match(mine, [], channels_last=True).names == {}


def test_layers_with_equal_names_are_matched():
    def places(*names):
        return [Place(name, "ReLU" if name.startswith(("relu", "act")) else "Linear", (2, 4), (2, 4)) for name in names]

    assert match(places("a", "relu", "b"), places("a", "act", "b"), channels_last=False).names == {"relu": "act"}
    assert match(places("a", "relu", "b"), places("act", "a", "b"), channels_last=False).names == {}


def test_layers_that_several_others_could_be_are_in_doubt():
    def places(*layers):
        return [Place(name, kind, (2, 4), (2, 4)) for name, kind in layers]

    mine = places(("fc1", "Linear"), ("relu", "ReLU"), ("relu2", "ReLU"), ("fc2", "Linear"), ("act", "ReLU"))
    theirs = places(("fc1", "Dense"), ("re_lu", "ReLU"), ("fc2", "Dense"), ("re_lu_1", "ReLU"))
    found = match(mine, theirs, channels_last=False)
    assert found.names == {"act": "re_lu_1"}
    assert found.doubtful == {"relu": ("re_lu",), "relu2": ("re_lu",)}
    (note,) = found.notes("tensorflow")
    assert 'write which is which into names.toml under [tensorflow], for example "relu" = "re_lu"' in note


def test_layers_of_different_known_kinds_are_no_match():
    mine, theirs = [Place("relu", "ReLU", (2, 4), (2, 4))], [Place("g", "GELU", (2, 4), (2, 4))]
    assert match(mine, theirs, channels_last=False).names == {}
    unknown = [Place("g", "Activation", (2, 4), (2, 4))]
    assert match(mine, unknown, channels_last=False).names == {"relu": "g"}
    added = [Place("g", "Add", (2, 4), (2, 4))]
    assert match(mine, added, channels_last=False).names == {}
    two = [*mine, Place("tanh", "Tanh", (2, 4), (2, 4)), Place("drop", "Dropout", (2, 4), (2, 4))]
    found = match(two, unknown, channels_last=False)
    assert (found.names, set(found.doubtful)) == ({}, {"relu", "tanh"})
