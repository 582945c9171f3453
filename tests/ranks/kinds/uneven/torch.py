import torch
from torch import distributed, nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(12, 16)
        self.fc2 = nn.Linear(16, 5)

    def forward(self, x):
        hidden = self.fc1(x).tanh()
        return self.fc2(hidden)


build = Net


def parallelize(model, mesh):
    def count(module, given):
        module.items = module.all_items = float(len(given[0]))
        every = torch.tensor(module.items)
        distributed.all_reduce(every)
        module.all_items = float(every)

    def weigh(parameter):
        share = model.items / model.all_items
        parameter.grad *= share
        distributed.all_reduce(parameter.grad)

    model.register_forward_pre_hook(count)
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(weigh)
    return model
