from paddle.vision.models import resnet


def build(depth=50, classes=1000, size=224):
    return getattr(resnet, f"resnet{depth}")(num_classes=classes)
