import jittor as jt
from jittor import nn


class Net(nn.Module):
    def __init__(self):
        self.body, self.box, self.score = nn.Linear(12, 16), nn.Linear(16, 4), nn.Linear(16, 2)

    def execute(self, x):
        h = jt.tanh(self.body(x))
        return {"box": self.box(h), "score": self.score(h)}


def build():
    return Net()
