from jittor.models import resnet


def build(depth=50):
    return getattr(resnet, f"Resnet{depth}")()
