import math

import keras
from keras import layers, ops


class FourierFeatures(layers.Layer):
    def __init__(self, levels, **more):
        super().__init__(**more)
        self.frequencies = [2.0**level * math.pi for level in range(levels)]

    def call(self, x):
        angles = ops.expand_dims(x, -1) * ops.convert_to_tensor(self.frequencies)
        angles = ops.reshape(angles, (*ops.shape(x)[:-1], 3 * len(self.frequencies)))
        return ops.concatenate([x, ops.sin(angles), ops.cos(angles)], -1)


class Field(keras.Model):
    def __init__(self, width):
        super().__init__()
        self.encode_points = FourierFeatures(4)
        self.encode_direction = FourierFeatures(2)
        self.before = [layers.Dense(width, activation="relu", name=f"hidden.{k}") for k in (0, 1)]
        self.after = [layers.Dense(width, activation="relu", name=f"hidden.{k}") for k in (2, 3)]
        self.density = layers.Dense(1, name="density")
        self.colour1 = layers.Dense(16, activation="relu", name="colour1")
        self.colour2 = layers.Dense(3, activation="sigmoid", name="colour2")

    def call(self, points, direction):
        features = self.encode_points(points)
        x = features
        for layer in self.before:
            x = layer(x)
        x = ops.concatenate([x, features], -1)
        for layer in self.after:
            x = layer(x)
        density = ops.softplus(4 * self.density(x)[..., 0]) / 4
        view = self.encode_direction(ops.normalize(direction))
        view = ops.repeat(view[:, None], x.shape[1], axis=1)
        return density, self.colour2(self.colour1(ops.concatenate([x, view], -1)))


def build(width=32):
    model = Field(width)
    model(ops.ones((1, 20, 3)), ops.ones((1, 3)))
    return model
