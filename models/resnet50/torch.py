from torchvision.models import resnet


def build(depth=50):
    return getattr(resnet, f"resnet{depth}")(weights=None)
