"""Mistakes in the glue code of whole models that the search for causes names."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.gluemodels import MODELS  # noqa: E402
from helpers.replayedports import model, random, replayed  # noqa: E402

# The model, what one changes in it to get the port, and the sentence.
FAULTS = [
    ("moe", "p.topk(self.k, dim=-1)", "p.topk(1, dim=-1)", "takes the 1 largest values (topk); the reference 2"),
    (
        "moe",
        "p.topk(self.k, dim=-1)",
        "p.topk(self.k, dim=-1, largest=False)",
        "takes the smallest values (topk); the reference the largest",
    ),
    ("moe", "        w = w / w.sum(-1, keepdim=True)\n", "", "does not divide by what the reference divides by"),
    ("moe", "self.out(x + y)", "self.out(h + y)", "uses the output of `norm`, where the reference uses"),
    (
        "stn",
        'padding_mode="border"',
        'padding_mode="zeros"',
        "pads its samples by the mode zeros; the reference by border",
    ),
    ("stn", 'mode="bilinear"', 'mode="nearest"', "interpolates by the mode nearest; the reference by bilinear"),
    (
        "stn",
        "torch.linspace(-1, 1, w)",
        "torch.arange(w) / w * 2 - 1",
        "leaves out the end of its grid from -1 to 1 (linspace)",
    ),
    (
        "stn",
        "        ys = torch.linspace(-1, 1, h)\n        xs = torch.linspace(-1, 1, w)",
        "        ys = (torch.arange(h) + 0.5) / h * 2 - 1\n        xs = (torch.arange(w) + 0.5) / w * 2 - 1",
        "takes the centres of cells from -1 to 1, where the reference's grid has both ends",
    ),
    ("stn", ".clamp(0.0, 1.5)", ".clamp(0.0, 1.0)", "has 1 for the upper limit of its values; the reference 1.5"),
    ("audio", "s.softmax(1)", "torch.sigmoid(s)", "takes the sigmoid where the reference takes a softmax"),
    ("audio", "(a * h).sum(1)", "h.mean(1)", "averages the second factor, where the reference sums a product"),
    (
        "decoder",
        "3.0 * torch.tanh(logits / 3.0)",
        "logits * torch.tanh(logits / 3.0)",
        "multiplies the tanh of its soft limit by the value itself, y·tanh(y/c)",
    ),
    (
        "decoder",
        "x1 * c - x2 * s, x1 * s + x2 * c",
        "x1 * c + x2 * s, x2 * c - x1 * s",
        "has the sign of its sin reversed, as a rotation in the other direction",
    ),
]


@pytest.mark.parametrize(("name", "old", "new", "says"), FAULTS)
def test_the_mistake_is_named(tmp_path, name, old, new, says):
    reference, inputs = MODELS[name]
    assert reference.count(old) == 1
    layers = replayed(tmp_path, reference, reference.replace(old, new), *inputs)
    assert layers.verdict == "DIFFERENT"
    assert says in layers.describe(layers.first)


@pytest.mark.parametrize("name", MODELS)
def test_the_right_model_draws_no_explanation(tmp_path, name):
    reference, inputs = MODELS[name]
    layers = replayed(tmp_path, reference, reference, *inputs)
    assert layers.verdict in ("IDENTICAL", "EQUAL")
    assert not any(each.glue or each.explanation for each in layers.layers)


OF_ONE_VALUE = model("self.fc = nn.Linear(6, 5)", "h = self.fc(x)\nreturn (h.square().mean() * 5.0).sum()[None]")


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("* 5.0", "* 6.0", "has 6 for a factor; the reference 5"),
        ("h.square()", "(h.square() + 0.3 * h.sin().square())", "the port's code there: its result is 1.214"),
    ],
)
def test_one_value_confirms_a_simple_number_alone(tmp_path, old, new, says):
    layers = replayed(tmp_path, OF_ONE_VALUE, OF_ONE_VALUE.replace(old, new), random(4, 6))
    [wrong] = [layer for layer in layers.layers if layer.verdict == "DIFFERENT"]
    assert says in wrong.glue
