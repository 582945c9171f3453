"""Every fault of the catalogue changes the output of its layer, and does not change the layer itself."""

import copy

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("greenlet")

from torch import nn  # noqa: E402

from xverify.explain.faults import catalogue  # noqa: E402
from xverify.float64.structures import flatten  # noqa: E402


def layers_and_inputs():
    image = torch.randn(2, 6, 8, 8, generator=torch.Generator().manual_seed(0))
    row = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    state = torch.randn(3, 5, generator=torch.Generator().manual_seed(2))
    return [
        (nn.Conv2d(6, 6, 3, 2, 1), (image,)), (nn.ConvTranspose2d(6, 4, 2, 2), (image,)), (nn.BatchNorm2d(6), (image,)),
        (nn.LayerNorm(6), (row,)), (nn.Linear(6, 6), (row,)), (nn.GELU(), (row,)), (nn.ReLU(), (row,)), (nn.Hardsigmoid(), (row,)),
        (nn.MaxPool2d(3, 2, 1), (image,)), (nn.AvgPool2d(3, 2, 1), (image,)), (nn.AdaptiveAvgPool2d(2), (image,)),
        (nn.Softmax(-1), (row,)),
        (nn.Upsample(scale_factor=1.5, mode="bilinear"), (image,)), (nn.LSTMCell(6, 5), (row, (state, state.flip(0)))),
        (nn.Flatten(), (image,)), (nn.Dropout(0.3), (row,)),
        (nn.Embedding(20, 6), (torch.arange(12).view(3, 4),)),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("layer", "args"),
    layers_and_inputs(),
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else "",
)
def test_no_fault_changes_the_layer_for_good(layer, args):
    """A fault changes the output, or does not fit the layer. The layer is the same afterwards."""
    layer.eval()
    if isinstance(layer, nn.BatchNorm2d):
        layer.running_mean.normal_()
        layer.running_var.uniform_(0.5, 2)
    state = copy.deepcopy(layer.state_dict())
    with torch.no_grad():
        before = flatten(layer(*args))[0]
        changed = 0
        for fault in catalogue.plantable_faults(layer):
            try:
                other = flatten(fault.forward(layer, layer.forward, *args))[0]
            except (RuntimeError, ValueError, IndexError, TypeError):
                continue
            changed += other.shape != before.shape or not torch.equal(other, before)
            assert torch.equal(flatten(layer(*args))[0], before), fault.kind
        assert changed >= 2
    assert all(torch.equal(tensor, state[name]) for name, tensor in layer.state_dict().items())


def test_the_catalogue_has_the_faults_that_occur_in_ports():
    kinds = {fault.kind for layer, _ in layers_and_inputs() for fault in catalogue.plantable_faults(layer)}
    wanted = {"eps", "momentum", "asymmetric padding", "GELU form", "align_corners", "kernel transposed", "input channels reversed",
              "gate order", "bias missing", "bias doubled", "NHWC flatten", "dropout left on", "softmax axis", "scaled",
              "float16 weights", "stride", "ceil_mode", "activation slope", "one stale weight"}  # fmt: skip
    assert wanted <= kinds
    assert len(kinds) >= 25


def test_faults_keep_their_indices():
    """A mutation plants a fault by its index, and an explanation reports the first one that fits."""
    kinds = [fault.kind for fault in catalogue.plantable_faults(nn.Linear(4, 4))]
    assert kinds == [
        "weight transposed", "bias missing", "bias doubled", "float16 weights", "float16 arithmetic", "bfloat16 weights",
        "bfloat16 arithmetic", "TF32 weights", "TF32 arithmetic", "layer skipped", "scaled", "one stale weight",
    ]  # fmt: skip
