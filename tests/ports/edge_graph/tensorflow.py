import keras
from keras import layers, ops


class Net(keras.Model):
    def __init__(self, width=8, depth=2):
        super().__init__()
        self.embed = layers.Dense(width, activation="relu", name="embed")
        self.messages = [layers.Dense(width, activation="tanh", name=f"steps.{i}.message") for i in range(depth)]
        self.norms = [
            layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=f"steps.{i}.norm") for i in range(depth)
        ]
        self.classes = layers.Dense(4, name="classes")
        self.score = layers.Dense(3, name="score")

    def call(self, nodes, edges, graph, training=False):
        source, target = edges[0], edges[1]
        x = self.embed(nodes)
        for message, norm in zip(self.messages, self.norms):
            sent = message(ops.concatenate([ops.take(x, source, axis=0), ops.take(x, target, axis=0)], axis=1))
            x = x + norm(ops.segment_sum(sent, target, num_segments=30), training=training)
        return self.classes(x), self.score(ops.segment_sum(x, graph, num_segments=5))


def build():
    return Net()
