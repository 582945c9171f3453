import tensorflow as tf
from tensorlayer.layers import Conv2d, Dense, Dropout, Flatten, Input, Lambda, MaxPool2d, Transpose
from tensorlayer.models import Model

STAGES = ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))  # filters, convolutions


def build(classes=1000):
    inputs = x = Input((None, 224, 224, 3), name="x")
    index = 0
    for filters, count in STAGES:
        for _ in range(count):
            # With stride 1, "SAME" pads one pixel on every side, as torch's padding=1 does.
            x = Conv2d(filters, (3, 3), (1, 1), padding="SAME", name=f"features.{index}")(x)
            x = Lambda(tf.nn.relu, name=f"features.{index + 1}")(x)
            index += 2
        x = MaxPool2d((2, 2), (2, 2), padding="VALID", name=f"features.{index}")(x)
        index += 1
    x = Lambda(tf.identity, name="avgpool")(x)  # an image of 224×224 is 7×7 here, the size to which torch pools
    x = Transpose((0, 3, 1, 2))(x)  # torch flattens in the order C,H,W
    x = Flatten()(x)
    x = Dense(4096, name="classifier.0")(x)
    x = Lambda(tf.nn.relu, name="classifier.1")(x)
    x = Dropout(0.5, name="classifier.2")(x)
    x = Dense(4096, name="classifier.3")(x)
    x = Lambda(tf.nn.relu, name="classifier.4")(x)
    x = Dropout(0.5, name="classifier.5")(x)
    x = Dense(classes, name="classifier.6")(x)
    return Model(inputs, x)
