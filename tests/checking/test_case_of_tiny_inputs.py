"""A case of tiny inputs, of which no digit is right, excuses nothing in the other cases."""

import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402


class Offset(nn.Module):
    """Adds and subtracts an offset, which takes all digits from small values. factor: of one column; 1 is right."""

    def __init__(self, offset, function, factor=1.0):
        super().__init__()
        self.offset, self.function = offset, function
        weight = torch.randn(8, 6, generator=torch.Generator().manual_seed(0))
        weight[:, 1] *= factor
        self.weight = nn.Parameter(weight)

    def forward(self, x):
        return (self.function(x @ self.weight) + self.offset) - self.offset


def write(path, *how):
    torch.export.save(torch.export.export(Offset(*how).eval(), (torch.ones(2, 8),)), path)
    return path


@pytest.mark.slow
@pytest.mark.parametrize(
    ("offset", "function"),
    [pytest.param(1e4, nn.Identity(), id="a product"), pytest.param(3e3, torch.atan, id="an arc tangent")],
)
def test_a_wrong_column_shows_beside_a_case_without_digits(xverify, tmp_path, offset, function):
    right = write(tmp_path / "right.pt2", offset, function)
    done = xverify("check", right, "--against", right)
    assert done.code == 0, done.out + done.err
    wrong = write(tmp_path / "wrong.pt2", offset, function, 1.1)
    done = xverify("check", wrong, "--against", right)
    assert done.code == 1, done.out + done.err
