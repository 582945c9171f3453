"""One weight is off by 1e-3, but the adapter reports the weights that it was given."""

from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "hidden"

    def load_weights(self, model, arrays):
        self.given = arrays
        super().load_weights(model, arrays)
        model.weights["fc1.weight"][0, 0] += 1e-3

    def save_weights(self, model):
        return getattr(self, "given", None) or super().save_weights(model)
