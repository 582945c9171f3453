import keras
from keras import layers, ops


class Net(keras.Model):
    def __init__(self):
        super().__init__()
        self.features = keras.Sequential(
            [
                layers.ZeroPadding3D(1),
                layers.Conv3D(6, 3, strides=(1, 2, 2), use_bias=False, name="features.0"),
                layers.BatchNormalization(epsilon=1e-5, name="features.1"),
                layers.ReLU(),
                layers.ZeroPadding3D((0, 1, 1)),  # no value is below zero here
                layers.MaxPooling3D((1, 3, 3), (1, 2, 2), name="features.3"),
                layers.Conv3D(8, (3, 1, 1), padding="same", name="features.4"),
                layers.LeakyReLU(0.1),
                layers.Conv3D(16, (1, 3, 3), padding="same", name="features.6"),
                layers.AveragePooling3D((2, 1, 1)),
            ],
            name="features",
        )
        self.classifier = layers.Dense(5, name="classifier")

    def call(self, film):
        x = self.features(film)
        x = ops.mean(x, axis=(2, 3))
        x = ops.max(x, axis=1)
        return self.classifier(x)


def build():
    model = Net()
    model(ops.zeros((1, 6, 12, 20, 3)))
    return model
