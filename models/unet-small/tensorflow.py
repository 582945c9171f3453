from keras import Input, Model, layers, ops

from xverify.models.keras_layers import BatchNorm2d, Conv2d, ConvTranspose2d, MaxPool2d


def block(x, outputs, name):
    relu = layers.ReLU(name=f"{name}.relu")
    x = Conv2d(outputs, 3, 1, 1, bias=False, name=f"{name}.conv1")(x)
    x = relu(BatchNorm2d(name=f"{name}.bn1")(x))
    x = Conv2d(outputs, 3, 1, 1, bias=False, name=f"{name}.conv2")(x)
    return relu(BatchNorm2d(name=f"{name}.bn2")(x))


def build(width=16, classes=2, size=128):
    inputs = Input((size, size, 3), name="x")
    enc1 = block(inputs, width, "enc1")
    enc2 = block(MaxPool2d(2, name="pool1")(enc1), 2 * width, "enc2")
    x = block(MaxPool2d(2, name="pool2")(enc2), 4 * width, "middle")
    x = ConvTranspose2d(2 * width, 2, 2, name="up2")(x)
    x = block(ops.concatenate([enc2, x], -1), 2 * width, "dec2")
    x = layers.UpSampling2D(2, interpolation="bilinear", name="up1")(x)
    x = block(ops.concatenate([enc1, x], -1), width, "dec1")
    x = Conv2d(classes, 1, name="head")(x)
    return Model(inputs, x, name="unet-small")
