"""What a check says about the weights of an export with batch norms folded into constants that keep the names of weights."""

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"y": TensorSpec(("N", 10))}, batch=2)
"""
MODEL = """
import torch
from torch import nn
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8)
        self.conv2, self.bn2 = nn.Conv2d(8, 8, 3), nn.BatchNorm2d(8)
        self.fc = nn.Linear(8, 10)
    def forward(self, x):
        x = torch.relu(self.bn1(self.conv1(x)))
        return self.fc(torch.relu(self.bn2(self.conv2(x))).mean((2, 3)))
def build():
    return Net()
"""


def drawn(seed):
    space = {}
    exec(MODEL, space)
    torch.manual_seed(seed)
    net = space["build"]().eval()
    for module in net.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.running_mean.normal_()
            module.running_var.uniform_(0.5, 2)
            module.weight.data.uniform_(0.5, 1.5)
            module.bias.data.normal_()
    return net


def said(xverify, folder, net, op=""):
    """What a check of an export of a model says, against the folder. op: an operator that stands in the place of ReLU."""
    import onnx
    from safetensors.torch import save_file

    (folder / "spec.py").write_text(SPEC)
    (folder / "torch.py").write_text(MODEL)
    save_file({k: v for k, v in drawn(0).state_dict().items() if "num_" not in k}, folder / "weights.safetensors")
    path = folder / "model.onnx"
    torch.onnx.export(net, (torch.randn(2, 3, 8, 8),), path, dynamo=True, external_data=False, verbose=False)
    model = onnx.load(path)
    assert "BatchNormalization" not in [node.op_type for node in model.graph.node]
    for node in model.graph.node:
        node.op_type = op if op and node.op_type == "Relu" else node.op_type
    onnx.save(model, path)
    done = xverify("check", path, "--against", folder)
    return done.code, " ".join(done.out.split())


def scaled(name, factor=1.01):
    net = drawn(0)
    net.get_parameter(name).data *= factor
    return net


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "op", "code", "says", "silent"),
    [
        (lambda: drawn(0), "", 0, "", "other values"),
        (lambda: drawn(0), "LeakyRelu", 1, "", "of the reference, which has"),
        (lambda: scaled("fc.weight"), "", 1, "fc.weight has other values", "conv1"),
        (lambda: scaled("conv2.weight"), "", 1, "conv2.weight has other values", "conv1.weight has"),
        (lambda: drawn(1), "", 1, "weights of the file are not those of the reference", "nothing"),
    ],
    ids=["right", "another activation", "another weight", "another folded weight", "other weights"],
)
def test_folded_weights_are_those_of_the_reference(xverify, tmp_path, make, op, code, says, silent):
    found, text = said(xverify, tmp_path, make(), op)
    assert found == code, text
    assert says in text
    assert silent not in text
