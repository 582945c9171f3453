from keras import Input, Model, layers

from xverify.models.keras_layers import AdaptiveAvgPool2d, Conv2d, Flatten, MaxPool2d


def build(classes=1000):
    inputs = Input((224, 224, 3), name="x")
    x = Conv2d(64, 11, 4, 2, name="features.0")(inputs)
    x = layers.ReLU(name="features.1")(x)
    x = MaxPool2d(3, 2, name="features.2")(x)
    x = Conv2d(192, 5, 1, 2, name="features.3")(x)
    x = layers.ReLU(name="features.4")(x)
    x = MaxPool2d(3, 2, name="features.5")(x)
    x = Conv2d(384, 3, 1, 1, name="features.6")(x)
    x = layers.ReLU(name="features.7")(x)
    x = Conv2d(256, 3, 1, 1, name="features.8")(x)
    x = layers.ReLU(name="features.9")(x)
    x = Conv2d(256, 3, 1, 1, name="features.10")(x)
    x = layers.ReLU(name="features.11")(x)
    x = MaxPool2d(3, 2, name="features.12")(x)
    x = AdaptiveAvgPool2d(6, name="avgpool")(x)
    x = Flatten()(x)
    x = layers.Dropout(0.5, name="classifier.0")(x)
    x = layers.Dense(4096, name="classifier.1")(x)
    x = layers.ReLU(name="classifier.2")(x)
    x = layers.Dropout(0.5, name="classifier.3")(x)
    x = layers.Dense(4096, name="classifier.4")(x)
    x = layers.ReLU(name="classifier.5")(x)
    x = layers.Dense(classes, name="classifier.6")(x)
    return Model(inputs, x, name="alexnet")
