from torchvision.models import resnet


def build(depth=50, classes=1000, size=224):
    return getattr(resnet, f"resnet{depth}")(weights=None, num_classes=classes)
