import torch
from torch import nn


class Cell(nn.Module):
    """A gated recurrent unit whose candidate is normalised."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.gates = nn.Linear(inputs + hidden, 2 * hidden)
        self.candidate = nn.Linear(inputs + hidden, hidden)
        self.norm = nn.LayerNorm(hidden)

    def forward(self, x, h):
        gates = torch.sigmoid(self.gates(torch.cat([x, h], 1)))
        reset, update = gates.chunk(2, 1)
        new = torch.tanh(self.norm(self.candidate(torch.cat([x, reset * h], 1))))
        return update * h + (1 - update) * new


class Forecast(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.cell = Cell(inputs, hidden)
        self.out = nn.Linear(hidden, outputs)

    def forward(self, series, state):
        found = []
        for step in range(series.shape[1]):
            state = self.cell(series[:, step], state)
            found.append(self.out(state))
        return torch.stack(found, 1), state


def build(inputs=5, hidden=12, outputs=3):
    return Forecast(inputs, hidden, outputs)
