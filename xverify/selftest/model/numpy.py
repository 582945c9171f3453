import numpy as np


class Net:
    def __init__(self):
        self.weights = {"fc.weight": np.zeros((3, 8), np.float32), "fc.bias": np.zeros(3, np.float32)}

    def __call__(self, x):
        return np.tanh(x @ self.weights["fc.weight"].T + self.weights["fc.bias"])


def build():
    return Net()
