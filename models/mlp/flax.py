from flax import nnx

from xverify.models.flax_layers import ReLU


class MLP(nnx.Module):
    def __init__(self, rngs):
        self.fc1 = nnx.Linear(784, 512, rngs=rngs)
        self.relu = ReLU()
        self.fc2 = nnx.Linear(512, 10, rngs=rngs)

    def __call__(self, x):
        return self.fc2(self.relu(self.fc1(x)))


def build():
    return MLP(nnx.Rngs(0))
