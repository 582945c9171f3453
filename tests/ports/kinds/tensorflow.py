from keras import Sequential, layers

from xverify.models.keras_layers import BatchNorm2d, Conv2d


def build(width, kernel):
    model = Sequential(
        [
            Conv2d(width, tuple(kernel), name="0"),
            BatchNorm2d(name="1"),
            layers.ReLU(name="2"),
            layers.GlobalAveragePooling2D(name="3"),
            layers.Dense(4, name="5"),
        ]
    )
    model.build((None, 9, 10, 3))
    return model
