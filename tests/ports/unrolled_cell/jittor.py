import jittor as jt
from jittor import nn


class Cell(nn.Module):
    def __init__(self, inputs, hidden):
        super().__init__()
        self.hidden = hidden
        self.gates = nn.Linear(inputs + hidden, 2 * hidden)
        self.candidate = nn.Linear(inputs + hidden, hidden)
        self.norm = nn.LayerNorm(hidden)

    def execute(self, x, h):
        gates = self.gates(jt.concat([x, h], dim=1))
        r = jt.sigmoid(gates[:, : self.hidden])
        z = jt.sigmoid(gates[:, self.hidden :])
        n = self.candidate(jt.concat([x, r * h], dim=1))
        n = jt.tanh(self.norm(n))
        return (1 - z) * n + z * h


class Forecast(nn.Module):
    def __init__(self, inputs, hidden, outputs):
        super().__init__()
        self.cell = Cell(inputs, hidden)
        self.out = nn.Linear(hidden, outputs)

    def execute(self, series, state):
        forecasts = []
        for x in series.unbind(1):
            state = self.cell(x, state)
            forecasts.append(self.out(state))
        return jt.stack(forecasts, dim=1), state


def build(inputs=5, hidden=12, outputs=3):
    return Forecast(inputs, hidden, outputs)
