"""A model with a batch norm, dropout and a recurrent layer: its spec and its code in torch, for the tests of several ports."""

SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    batch=8, task="classification",
    inputs={"x": TensorSpec(("N", 3, 8, 8), layout="NCHW")}, outputs={"logits": TensorSpec(("N", 5))},
)
"""
TORCH = """
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 6, 3)
        self.bn = nn.BatchNorm2d(6)
        self.relu = nn.ReLU()
        self.drop = nn.Dropout(0.5)
        self.lstm = nn.LSTM(6, 4, batch_first=True)
        self.fc = nn.Linear(4, 5)

    def forward(self, x):
        x = self.drop(self.relu(self.bn(self.conv(x))))
        return self.fc(self.lstm(x.mean(2).transpose(1, 2))[0][:, -1])


def build():
    return Net()
"""
# The same with both directions of the recurrent layer.
BIDIRECTIONAL = (
    TORCH.replace(
        "self.lstm = nn.LSTM(6, 4, batch_first=True)", "self.both = nn.LSTM(6, 4, batch_first=True, bidirectional=True)"
    )
    .replace("nn.Linear(4, 5)", "nn.Linear(8, 5)")
    .replace("self.lstm(x.mean(2).transpose(1, 2))[0][:, -1]", "self.both(x.mean(2).transpose(1, 2))[0].mean(1)")
)
