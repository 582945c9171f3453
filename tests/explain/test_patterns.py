"""Differences that no known fault reproduces are described by what differs."""

import pytest

torch = pytest.importorskip("torch")

from xverify.explain.patterns import describe  # noqa: E402
from xverify.replay.alternative_gradients import is_through_maximum  # noqa: E402
from xverify.replay.difference import Difference  # noqa: E402
from xverify.replay.tensors import Floors, Place, judge  # noqa: E402
from xverify.verdict.limits import UNIT  # noqa: E402


def fits_to(captured):
    return lambda exact: bool(torch.allclose(exact, captured.double(), rtol=1e-5, atol=1e-6))


@pytest.mark.parametrize(
    ("axis", "channels", "says"),
    [
        (1, 1, "only its channel 2 (axis 1) differs: a wrong value in that channel's weights"),
        (2, -1, "only its channel 2 (axis 2) differs: a wrong value in that channel's weights"),
        (2, 1, "only its position 2 along axis 2 differs"),
    ],
)
def test_a_position_is_not_called_a_channel(axis, channels, says):
    exact = torch.randn(3, 5, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    captured = exact.clone()
    captured.select(axis, 2).mul_(1.5).add_(1.0)
    assert describe(captured.float(), exact, fits_to(captured), channels).says == says


@pytest.mark.parametrize(("of_logits", "explained"), [(True, True), (False, False)])
def test_only_the_gradient_of_logits_is_explained_by_the_maximum_of_a_loss(of_logits, explained):
    """The value at the largest logit is off by the rounding of a sum over all classes."""
    logits = torch.randn(4, 6, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    labels = torch.nn.functional.one_hot(torch.tensor([0, 3, 2, 5]), 6)
    exact = logits.softmax(-1) - labels if of_logits else logits
    captured = exact + 4e-7 * (logits == logits.amax(-1, keepdim=True))
    floors = Floors.between(exact, exact * (1 + UNIT), exact.float().double(), -1, UNIT)
    finding = judge(Place("fc", 0, 0, "Linear", "upstream"), captured, floors, 1, -1)
    assert is_through_maximum(Difference(finding, captured, floors, -1, 1), logits) is explained
