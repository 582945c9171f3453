from jittor.models import resnet


def build(depth=50, classes=1000, size=224):
    return getattr(resnet, f"Resnet{depth}")(num_classes=classes)
