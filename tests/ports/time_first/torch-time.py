from torch import nn


class Net(nn.Module):
    """The same with time before items from the first layer to the last."""

    def __init__(self, width=12, heads=3, hidden=10):
        super().__init__()
        self.embed = nn.Linear(width, width)
        self.attn = nn.MultiheadAttention(width, heads)
        self.norm = nn.LayerNorm(width)
        self.lstm = nn.LSTM(width, hidden)
        self.head = nn.Linear(hidden, 5)

    def forward(self, x):
        x = self.embed(x.transpose(0, 1))
        y, _ = self.attn(x, x, x, need_weights=False)
        x = self.norm(x + y)
        y, _ = self.lstm(x)
        return self.head(y.transpose(0, 1))


def build():
    return Net()
