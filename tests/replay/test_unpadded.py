"""Ports whose convolution pads itself, where the reference pads before it: its input is judged without the zeros around it."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayedports import model, random, replayed  # noqa: E402

from xverify.results.verdicts import Verdict  # noqa: E402

LAYERS = "self.first, self.conv, self.last = nn.Conv1d(4, 6, 1), nn.Conv1d(6, 6, 3, {}, dilation=2), nn.Conv1d(6, 5, 1)"
REFERENCE = model(LAYERS.format("padding=0"), "return self.last(self.conv(F.pad(self.first(x).tanh(), (4, 0))).relu())")
RIGHT = model(LAYERS.format("padding=4"), "return self.last(self.conv(self.first(x).tanh())[..., :-4].relu())")
X = random(3, 4, 13)
SQUARE = model("self.conv = nn.Conv2d(3, 4, 3)", "return self.conv(F.pad(x * 2, (1, 1, 0, 2)))")


def test_a_port_whose_layer_pads_is_right(tmp_path):
    layers = replayed(tmp_path, REFERENCE, RIGHT, X)
    assert layers.verdict == Verdict.EQUAL, layers
    assert (layers.compared, layers.known, layers.missing, layers.partial, layers.stopped) == (3, 3, (), (), "")
    [conv] = [each for each in layers.layers if each.layer == "conv"]
    assert not conv.joined


@pytest.mark.parametrize(
    ("old", "new", "place", "faulty"),
    [
        ("self.first(x).tanh()", "self.first(x).sigmoid()", "conv", "input"),
        ("self.first(x).tanh()", "self.first(x).tanh().roll(1, -1)", "conv", "input"),
        ("[..., :-4]", "[..., 4:]", "last", "input"),
        ("self.conv(", "-self.conv(", "last", "input"),
    ],
)
def test_a_fault_before_and_behind_such_a_layer_is_placed(tmp_path, old, new, place, faulty):
    assert RIGHT.count(old) == 1
    layers = replayed(tmp_path, REFERENCE, RIGHT.replace(old, new), X)
    assert layers.verdict == Verdict.DIFFERENT
    assert (layers.first.layer, layers.first.faulty) == (place, faulty)


def test_a_fault_before_such_a_layer_is_named(tmp_path):
    layers = replayed(tmp_path, REFERENCE, RIGHT.replace("tanh()", "sigmoid()"), X)
    assert "computes Sigmoid; the reference tanh" in layers.first.glue


def test_zeros_on_other_sides_are_a_fault_at_the_layer(tmp_path):
    port = model("self.conv = nn.Conv2d(3, 4, 3, padding=1)", "return self.conv(x * 2)")
    layers = replayed(tmp_path, SQUARE, port, random(2, 3, 6, 7))
    assert layers.verdict == Verdict.DIFFERENT
    assert layers.first.layer == "conv"


def test_what_is_padded_with_other_values_is_judged_together_with_the_layer(tmp_path):
    reference = model("self.a = nn.Conv1d(4, 4, 3)", "return self.a(F.pad(x, (1, 1), mode='replicate'))")
    port = model("self.a = nn.Conv1d(4, 4, 3, padding=1, padding_mode='replicate')", "return self.a(x)")
    layers = replayed(tmp_path, reference, port, X)
    assert layers.verdict == Verdict.EQUAL
    assert [bool(each.joined) for each in layers.layers if each.layer == "a"] == [True]
