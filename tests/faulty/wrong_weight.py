"""One weight is off by 1e-3 after loading."""

from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "wrong_weight"

    def load_weights(self, model, arrays):
        super().load_weights(model, arrays)
        model.weights["fc1.weight"][0, 0] += 1e-3
