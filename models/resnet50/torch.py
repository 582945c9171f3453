from torchvision.models import resnet50


def build():
    return resnet50(weights=None)
