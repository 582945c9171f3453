from torch import nn
from torchvision.models import resnet


def build(depth=50, classes=1000, size=224):
    return getattr(resnet, f"resnet{depth}")(weights=None, num_classes=classes)


def parallelize(model, mesh):
    """Tensor parallel: each rank has a part of the output channels of every convolution, and of the classes."""
    from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
    from torch.distributed.tensor.parallel import ColwiseParallel, parallelize_module
    from torch.nn.functional import conv2d

    def divide(conv):
        conv.weight = nn.Parameter(distribute_tensor(conv.weight.detach(), mesh, [Shard(0)]))

        def forward(x):
            # The gradient of a rank is that of its own channels: the sum over the ranks is that of x.
            x = DTensor.from_local(x, mesh, [Replicate()], run_check=False).to_local(grad_placements=[Partial()])
            y = conv2d(x, conv.weight.to_local(), None, conv.stride, conv.padding, conv.dilation)
            return DTensor.from_local(y, mesh, [Shard(1)], run_check=False).full_tensor()

        conv.forward = forward

    for module in model.modules():
        if isinstance(module, nn.Conv2d):
            divide(module)
    parallelize_module(model, mesh, {"fc": ColwiseParallel(output_layouts=Replicate())})
    return model
