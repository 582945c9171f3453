import torch
from torch import nn

from xverify.models.torch_layers import UnrolledLSTM


class Cell(nn.Module):
    """One step of one layer. The rows of the gates are in the order i, f, g, o."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.weight_ih = uniform(hidden, (4 * hidden, inputs))
        self.weight_hh = uniform(hidden, (4 * hidden, hidden))
        self.bias_ih = uniform(hidden, (4 * hidden,))
        self.bias_hh = uniform(hidden, (4 * hidden,))

    def forward(self, x, state: tuple[torch.Tensor, torch.Tensor]):
        h, c = state
        gates = x @ self.weight_ih.T + self.bias_ih + h @ self.weight_hh.T + self.bias_hh
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c


def uniform(hidden, shape):
    bound = hidden**-0.5
    return nn.Parameter(torch.empty(shape).uniform_(-bound, bound))


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return UnrolledLSTM(Cell, vocabulary, embedding, hidden, layers, length)
