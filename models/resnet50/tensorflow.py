from keras import Input, Model, layers


def conv(x, filters, kernel, stride, padding, name):
    """torch's symmetric padding; Keras' "same" would pad a stride of two on one side more."""
    if padding:
        x = layers.ZeroPadding2D(padding, name=f"{name}.pad")(x)
    return layers.Conv2D(filters, kernel, stride, use_bias=False, name=name)(x)


def batch_norm(x, name):
    """torch's constants; torch's momentum 0.1 is the weight of the new value, Keras' 0.9 that of the old."""
    return layers.BatchNormalization(momentum=0.9, epsilon=1e-5, name=name)(x)


def bottleneck(x, width, stride, name):
    """1×1, 3×3 with the stride, 1×1; a projection where the shape changes."""
    identity = x
    out = conv(x, width, 1, 1, 0, f"{name}.conv1")
    out = batch_norm(out, f"{name}.bn1")
    out = layers.ReLU(name=f"{name}.relu")(out)
    out = conv(out, width, 3, stride, 1, f"{name}.conv2")
    out = batch_norm(out, f"{name}.bn2")
    out = layers.ReLU(name=f"{name}.relu_1")(out)
    out = conv(out, width * 4, 1, 1, 0, f"{name}.conv3")
    out = batch_norm(out, f"{name}.bn3")
    if stride != 1 or x.shape[-1] != width * 4:
        identity = conv(x, width * 4, 1, stride, 0, f"{name}.downsample.0")
        identity = batch_norm(identity, f"{name}.downsample.1")
    out = layers.Add(name=f"{name}.add")([out, identity])
    return layers.ReLU(name=f"{name}.relu_2")(out)


def build():
    inputs = Input((224, 224, 3), name="x")
    x = conv(inputs, 64, 7, 2, 3, "conv1")
    x = batch_norm(x, "bn1")
    x = layers.ReLU(name="relu")(x)
    x = layers.ZeroPadding2D(1, name="maxpool.pad")(x)  # zeros are as good as -inf after a ReLU
    x = layers.MaxPooling2D(3, 2, name="maxpool")(x)
    for stage, (width, blocks) in enumerate(((64, 3), (128, 4), (256, 6), (512, 3)), start=1):
        for block in range(blocks):
            x = bottleneck(x, width, 2 if stage > 1 and block == 0 else 1, f"layer{stage}.{block}")
    x = layers.GlobalAveragePooling2D(name="avgpool")(x)
    x = layers.Dense(1000, name="fc")(x)
    return Model(inputs, x, name="resnet50")
