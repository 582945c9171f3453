import jittor as jt
from jittor import nn

from xverify.models.jittor_layers import UnrolledLSTM


class Cell(nn.Module):
    """One step of one layer. The rows of the gates are in the order i, f, g, o."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.weight_ih = uniform(hidden, (4 * hidden, inputs))
        self.weight_hh = uniform(hidden, (4 * hidden, hidden))
        self.bias_ih = uniform(hidden, (4 * hidden,))
        self.bias_hh = uniform(hidden, (4 * hidden,))

    def execute(self, x, h, c):
        gates = x @ self.weight_ih.t() + self.bias_ih + h @ self.weight_hh.t() + self.bias_hh
        i, f, g, o = gates.chunk(4, 1)
        c = jt.sigmoid(f) * c + jt.sigmoid(i) * jt.tanh(g)
        h = jt.sigmoid(o) * jt.tanh(c)
        return h, c


def uniform(hidden, shape):
    bound = hidden**-0.5
    return jt.init.uniform(shape, "float32", -bound, bound)


class LanguageModel(UnrolledLSTM):
    def step(self, cell, x, h, c):
        return cell(x, h, c)


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return LanguageModel(Cell, vocabulary, embedding, hidden, layers, length)
