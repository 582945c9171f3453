from jittor.models import resnet50


def build():
    return resnet50()
