"""One linear layer and a tanh, in numpy."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


class Net:
    def __init__(self) -> None:
        self.weights = {"fc.weight": np.zeros((3, 8), np.float32), "fc.bias": np.zeros(3, np.float32)}

    def __call__(self, x: NDArray[Any]) -> NDArray[Any]:
        y: NDArray[Any] = np.tanh(x @ self.weights["fc.weight"].T + self.weights["fc.bias"])
        return y


def build() -> Net:
    return Net()
