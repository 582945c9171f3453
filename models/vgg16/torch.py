from torchvision.models import vgg16


def build(classes=1000):
    return vgg16(weights=None, num_classes=classes)
