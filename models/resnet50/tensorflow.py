from keras import Input, Model, layers

from xverify.models.keras_layers import AdaptiveAvgPool2d, BatchNorm2d, Conv2d, Flatten, MaxPool2d

BLOCKS = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 152: (3, 8, 36, 3)}


def basic(x, width, stride, name):
    """Convolutions 3×3 (with the stride) and 3×3, and a projection where the shape changes."""
    relu = layers.ReLU(name=f"{name}.relu")
    out = Conv2d(width, 3, stride, 1, bias=False, name=f"{name}.conv1")(x)
    out = BatchNorm2d(name=f"{name}.bn1")(out)
    out = relu(out)
    out = Conv2d(width, 3, 1, 1, bias=False, name=f"{name}.conv2")(out)
    out = BatchNorm2d(name=f"{name}.bn2")(out)
    return relu(out + projected(x, width, stride, name))


def bottleneck(x, width, stride, name):
    """Convolutions 1×1, 3×3 (with the stride) and 1×1, and a projection where the shape changes."""
    relu = layers.ReLU(name=f"{name}.relu")
    out = Conv2d(width, 1, bias=False, name=f"{name}.conv1")(x)
    out = BatchNorm2d(name=f"{name}.bn1")(out)
    out = relu(out)
    out = Conv2d(width, 3, stride, 1, bias=False, name=f"{name}.conv2")(out)
    out = BatchNorm2d(name=f"{name}.bn2")(out)
    out = relu(out)
    out = Conv2d(4 * width, 1, bias=False, name=f"{name}.conv3")(out)
    out = BatchNorm2d(name=f"{name}.bn3")(out)
    return relu(out + projected(x, 4 * width, stride, name))


def projected(x, filters, stride, name):
    if stride == 1 and x.shape[-1] == filters:
        return x
    x = Conv2d(filters, 1, stride, bias=False, name=f"{name}.downsample.0")(x)
    return BatchNorm2d(name=f"{name}.downsample.1")(x)


def build(depth=50, classes=1000, size=224):
    block = basic if depth == 18 else bottleneck
    inputs = Input((size, size, 3), name="x")
    x = Conv2d(64, 7, 2, 3, bias=False, name="conv1")(inputs)
    x = BatchNorm2d(name="bn1")(x)
    x = layers.ReLU(name="relu")(x)
    x = MaxPool2d(3, 2, 1, name="maxpool")(x)
    for stage, count in enumerate(BLOCKS[depth], start=1):
        for index in range(count):
            stride = 2 if stage > 1 and index == 0 else 1
            x = block(x, 64 * 2 ** (stage - 1), stride, f"layer{stage}.{index}")
    x = AdaptiveAvgPool2d(1, name="avgpool")(x)
    x = Flatten()(x)
    x = layers.Dense(classes, name="fc")(x)
    return Model(inputs, x, name=f"resnet{depth}")
