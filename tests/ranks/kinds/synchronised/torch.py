from torch import distributed, nn
from torch.distributed.nn.functional import all_reduce


class Center(nn.Module):
    """Takes the mean over the items of the batch off, also over those of other ranks."""

    synchronised = False

    def forward(self, x):
        mean = x.mean(0)
        if self.synchronised:
            mean = all_reduce(mean) / distributed.get_world_size()
        return x - mean


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.center = Center()
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        hidden = self.center(self.fc1(x)).tanh()
        return self.fc2(hidden)


build = Net


def parallelize(model, mesh):
    count = mesh.size()

    model.center.synchronised = True

    def average(parameter):
        gradient = parameter.grad
        distributed.all_reduce(gradient)
        gradient /= count

    names = ["fc1.weight", "fc1.bias", "fc2.weight", "fc2.bias"]
    for name in names:
        model.get_parameter(name).register_post_accumulate_grad_hook(average)
    return model
