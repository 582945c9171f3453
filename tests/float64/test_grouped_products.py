"""Products of groups of rows, for which torch has no kernel in float64."""

import pytest
import torch

from xverify.float64.arithmetic import float64_arithmetic

pytestmark = pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="this torch has no grouped products")


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [[2, 0, 3], [1, 1, 1], [0, 0, 5]])
def test_product_of_groups_is_computed_in_float64(sizes):
    random = torch.Generator().manual_seed(0)
    rows = torch.randn(sum(sizes), 8, generator=random, dtype=torch.float64)
    matrices = torch.randn(3, 8, 4, generator=random, dtype=torch.float64)
    with float64_arithmetic():
        found = torch._grouped_mm(rows, matrices, offs=torch.tensor(sizes).cumsum(0).int())
    groups = torch.repeat_interleave(torch.arange(3), torch.tensor(sizes))
    exact = torch.einsum("ri,rio->ro", rows, matrices[groups])
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, exact, rtol=1e-14, atol=1e-14)
