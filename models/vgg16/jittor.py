from jittor.models import vgg16


def build(classes=1000):
    return vgg16(num_classes=classes)
