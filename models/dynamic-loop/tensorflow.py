from keras import Model, layers, ops


class DynamicLoop(Model):
    def __init__(self, width, classes):
        super().__init__()
        self.fc = layers.Dense(width, name="fc")
        self.tanh = layers.Activation("tanh", name="tanh")
        self.out = layers.Dense(classes, name="out")
        for layer in (self.fc, self.tanh, self.out):
            layer.build((None, width))  # variables must not be created inside the loop

    def call(self, x, steps):
        def more(done, x):
            return done < steps[0]

        def step(done, x):
            return done + 1, self.tanh(self.fc(x))

        _, x = ops.while_loop(more, step, (ops.zeros_like(steps[0]), x))
        return self.out(x)


def build(width=64, classes=10):
    return DynamicLoop(width, classes)
