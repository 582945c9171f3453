"""Mistakes in the order of operations, and sentences that would say more than is known."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from helpers.replayedports import model, random, replayed  # noqa: E402

X, POSITIVE = random(3, 7, 8), random(3, 7, 8).abs() + 0.1
LENGTHS = torch.tensor([3, 6, 7])
PAIR = "self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 6)"
MASKED = "m = torch.arange(7) < (n - 1)[:, None]\nreturn self.b(self.a(x).masked_fill(~m[..., None], 0.0))"

FAULTS = [
    ("return self.b(-self.a(x).exp())", "-self.a(x).exp()", "(-self.a(x)).exp()", "takes exp(−x); the reference −exp(x)"),
    ("return self.b((-self.a(x)).exp())", "(-self.a(x)).exp()", "-self.a(x).exp()", "takes −exp(x); the reference exp(−x)"),
    (
        "return self.b(F.softplus(-self.a(x)))", "F.softplus(-self.a(x))", "-F.softplus(self.a(x))",
        "takes −softplus(x); the reference softplus(−x)",
    ),
    (
        "return self.b((x + self.a(x)) * 0.5)", "(x + self.a(x)) * 0.5", "x + self.a(x) * 0.5",
        "scales the second term of a sum alone; the reference the whole sum",
    ),
    (
        "return self.b((x + self.a(x)) / 3)", "(x + self.a(x)) / 3", "x / 3 + self.a(x)",
        "scales the first term of a sum alone; the reference the whole sum",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("body", "old", "new", "says"), FAULTS)
def test_an_operation_in_another_order_is_named(tmp_path, body, old, new, says):
    assert body.count(old) == 1
    layers = replayed(tmp_path, model(PAIR, body), model(PAIR, body.replace(old, new)), X)
    assert layers.verdict == "DIFFERENT"
    assert says in layers.first.glue


@pytest.mark.parametrize("port", ["< n[:, None]", "<= (n - 1)[:, None]"])
def test_a_comparison_of_whole_numbers_does_not_tell_the_sign_from_a_number(tmp_path, port):
    reference = model(PAIR, MASKED).replace("def forward(self, x)", "def forward(self, x, n)")
    wrong = reference.replace("< (n - 1)[:, None]", port)
    assert wrong != reference
    layers = replayed(tmp_path, reference, wrong, X, LENGTHS)
    assert layers.verdict == "DIFFERENT"
    says = "compares by <=, where the reference compares by <, or one of the two numbers is off by one"
    assert says in layers.first.glue


def test_a_comparison_of_fractions_tells_its_sign(tmp_path):
    reference = model(PAIR, "return self.b(self.a(x) * (x.round() > 0.0))")
    layers = replayed(tmp_path, reference, reference.replace("> 0.0", ">= 0.0"), POSITIVE.round())
    assert layers.verdict == "DIFFERENT"
    assert "compares by >=, where the reference compares by >" in layers.first.glue
    assert "off by one" not in layers.first.glue


def test_a_layer_that_is_rightly_given_the_input_of_another_one_is_no_cause(tmp_path):
    reference = model(
        "self.a, self.b, self.c = nn.Linear(8, 8), nn.Linear(8, 6), nn.Linear(8, 6)",
        "h = self.a(x).tanh()\nreturn self.b(h) + self.c(h)",
    )
    wrong = reference.replace("self.a(x).tanh()", "self.a(x).tanh() + 0.2 * torch.sin(3 * x * x) * x.exp()")
    layers = replayed(tmp_path, reference, wrong, X)
    assert layers.verdict == "DIFFERENT"
    assert [each.layer for each in layers.layers if each.faulty == "input"][:2] == ["b", "c"]
    assert not any("passes on" in (each.glue or "") for each in layers.layers)
