"""Mistakes in the glue code of whole models that the search for causes names."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.gluemodels import MODELS  # noqa: E402
from helpers.replayedports import replayed  # noqa: E402

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
    (
        "stn",
        "theta.transpose(1, 2)",
        "theta.view(-1, 3, 2)",
        "reshapes (2, 2, 3) to (2, 3, 2), where the reference transposes",
    ),
    (
        "fcos",
        "            cx = (torch.arange(w) + 0.5) * stride\n            cy = (torch.arange(h) + 0.5) * stride",
        "            cx = torch.arange(w) * stride\n            cy = torch.arange(h) * stride",
        "has positions that are half a step earlier, such as corners for centres",
    ),
    (
        "fcos",
        "            cx = (torch.arange(w) + 0.5) * stride\n            cy = (torch.arange(h) + 0.5) * stride",
        "            cx = torch.arange(w) * stride + 0.5\n            cy = torch.arange(h) * stride + 0.5",
        "adds 0.5 after a product, which the reference adds before it",
    ),
    ("fcos", "torch.exp(self.scale * y[:, :4])", "F.relu(self.scale * y[:, :4])", "computes ReLU; the reference exp"),
    (
        "fcos",
        "torch.minimum(t, b) / torch.maximum(t, b)",
        "torch.maximum(t, b) / torch.minimum(t, b)",
        "has dividend and divisor exchanged",
    ),
    (
        "rnnt",
        "            h = self.cell(e[:, t], h)\n            outputs.append(h)",
        "            outputs.append(h)\n            h = self.cell(e[:, t], h)",
        "joins the values of one step earlier, with zeros as the first one",
    ),
    (
        "rnnt",
        "h = self.cell(e[:, t], h)",
        "h = self.cell(e[:, t], torch.zeros_like(h))",
        "passes on zeros, such as a state that is reset",
    ),
    (
        "rnnt",
        "f[:, :, None] + p[:, None]",
        "f[:, :, None] * p[:, None]",
        "multiplies two tensors, where the reference adds them",
    ),
    (
        "crf",
        "alpha[:, :, None] + self.transitions, 1)",
        "alpha[:, :, None] + self.transitions.T, 1)",
        "operand of an operation (add) transposed",
    ),
    (
        "crf",
        "torch.logsumexp(alpha[:, :, None] + self.transitions, 1)",
        "(alpha[:, :, None] + self.transitions).amax(1)",
        "takes the maximum where the reference takes logsumexp",
    ),
    (
        "crf",
        "new = torch.logsumexp(alpha[:, :, None] + self.transitions, 1) + scores[:, t]",
        "new = torch.logsumexp(alpha[:, :, None] + self.transitions, 1) + scores[:, t - 1]",
        "takes the position before the reference's of axis 1",
    ),
    (
        "gat",
        " | torch.eye(nodes, dtype=torch.bool)",
        "",
        "leaves out the second condition of two that the reference joins by or",
    ),
    (
        "gat",
        "u[:, :, None] + v[:, None]",
        "v[:, :, None] + u[:, None]",
        "has the operands of an outer sum exchanged: its result is transposed",
    ),
    (
        "gat",
        "weights, h)",
        "weights.transpose(1, 2), h)",
        "has axes 1 and 2 of the first operand of an einsum exchanged",
    ),
    (
        "fno",
        "torch.fft.rfft2(y)",
        'torch.fft.rfft2(y, norm="ortho")',
        "has the norm 'ortho' in its rfft2; the reference 'backward'",
    ),
    (
        "fno",
        "torch.view_as_complex(self.a)",
        "torch.view_as_complex(self.a).conj()",
        "takes the conjugate of the second operand of an einsum",
    ),
    ("fno", "        z[:, :, -m:, :m] = high\n", "", "does not assign values that the reference assigns"),
    (
        "fno",
        "f[:, :, :m, :m], torch.view_as_complex(self.a)",
        "f[:, :, :m, :m], torch.view_as_complex(self.b)",
        "uses `b`, where the reference uses `a`",
    ),
    (
        "xl",
        "(q + self.u) @ k.transpose(2, 3)\n        place = self.shift((q + self.v) @ p)",
        "(q + self.v) @ k.transpose(2, 3)\n        place = self.shift((q + self.u) @ p)",
        "has `u` and `v` exchanged",
    ),
    (
        "xl",
        "torch.arange(length - 1, -1, -1.0)",
        "torch.arange(0.0, length)",
        "counts its positions in the reverse order",
    ),
    ("xl", "10000.0 **", "1000.0 **", "has 1000 for the base of a power; the reference 10000"),
    (
        "nerf",
        "2.0 ** torch.arange(self.bands)",
        "2.0 ** torch.arange(1, self.bands + 1)",
        "has positions that start at 1; the reference's start at 0",
    ),
    (
        "nerf",
        "        through = torch.cat([torch.ones_like(through[:, :1]), through[:, :-1]], -1)\n",
        "",
        "takes an older value, that of torch.py:",
    ),
    (
        "audio",
        "torch.log(torch.clamp(self.mel(power).abs(), min=1e-2))",
        "torch.log1p(torch.clamp(self.mel(power).abs(), min=1e-2))",
        "computes log1p; the reference log",
    ),
    (
        "audio",
        "(mel * m).sum(1, keepdim=True) / count",
        "mel.mean(1, keepdim=True)",
        "averages over all positions, where the reference averages over the open ones of a mask",
    ),
    ("audio", "power = x ** 2", "power = x.abs()", "computes the absolute value; the reference the square"),
    (
        "audio",
        "var = ((mel - mean) ** 2 * m).sum(1, keepdim=True) / count",
        "var = ((mel - mean) ** 2 * m).sum(1, keepdim=True) / (count - 1)",
        "divides by one less than the reference",
    ),
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


@pytest.mark.parametrize(
    ("name", "old", "new", "says"), FAULTS, ids=[f"{name}-{k}" for k, (name, *_) in enumerate(FAULTS)]
)
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
