from keras import Input, Model, layers

from xverify.models.keras_layers import AdaptiveAvgPool2d, Conv2d, Flatten, MaxPool2d

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # filters, convolutions


def build(classes=1000):
    inputs = x = Input((224, 224, 3), name="x")
    index = 0
    for filters, count in STAGES:
        for _ in range(count):
            x = Conv2d(filters, 3, 1, 1, name=f"features.{index}")(x)
            x = layers.ReLU(name=f"features.{index + 1}")(x)
            index += 2
        x = MaxPool2d(2, 2, name=f"features.{index}")(x)
        index += 1
    x = AdaptiveAvgPool2d(7, name="avgpool")(x)
    x = Flatten()(x)
    x = layers.Dense(4096, name="classifier.0")(x)
    x = layers.ReLU(name="classifier.1")(x)
    x = layers.Dropout(0.5, name="classifier.2")(x)
    x = layers.Dense(4096, name="classifier.3")(x)
    x = layers.ReLU(name="classifier.4")(x)
    x = layers.Dropout(0.5, name="classifier.5")(x)
    x = layers.Dense(classes, name="classifier.6")(x)
    return Model(inputs, x, name="vgg16")
