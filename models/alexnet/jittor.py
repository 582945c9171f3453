from jittor.models import alexnet


def build(classes=1000):
    return alexnet(num_classes=classes)
