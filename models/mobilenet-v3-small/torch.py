from torchvision.models import mobilenet_v3_small


def build(classes=1000, size=224):
    return mobilenet_v3_small(weights=None, num_classes=classes)
