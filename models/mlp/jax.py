import numpy as np
from jax import nn


class MLP:
    def __init__(self):
        self.weights = {
            "fc1.weight": np.zeros((512, 784), np.float32),
            "fc1.bias": np.zeros(512, np.float32),
            "fc2.weight": np.zeros((10, 512), np.float32),
            "fc2.bias": np.zeros(10, np.float32),
        }

    def apply(self, w, x):
        x = nn.relu(x @ w["fc1.weight"].T + w["fc1.bias"])
        return x @ w["fc2.weight"].T + w["fc2.bias"]


def build():
    return MLP()
