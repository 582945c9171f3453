from torchvision.models import alexnet


def build(classes=1000):
    return alexnet(weights=None, num_classes=classes)
