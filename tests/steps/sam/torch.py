import torch
from torch import nn
from torch.nn.functional import cross_entropy


class SAM(torch.optim.Optimizer):
    def __init__(self, params, base_optimizer, rho=0.05, **kwargs):
        super().__init__(params, dict(rho=rho, **kwargs))
        self.base_optimizer = base_optimizer(self.param_groups, **kwargs)
        self.param_groups = self.base_optimizer.param_groups

    @torch.no_grad()
    def first_step(self):
        norms = [p.grad.norm(p=2) for group in self.param_groups for p in group["params"]]
        grad_norm = torch.stack(norms).norm(p=2)
        for group in self.param_groups:
            scale = group["rho"] / (grad_norm + 1e-12)
            for p in group["params"]:
                self.state[p]["old_p"] = p.data.clone()
                p.add_(p.grad * scale)
        self.zero_grad()

    @torch.no_grad()
    def second_step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data = self.state[p]["old_p"]
        self.base_optimizer.step()
        self.zero_grad()

    def step(self, closure=None):
        raise NotImplementedError("call first_step and second_step")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(12, 24), nn.Linear(24, 24), nn.Linear(24, 5)

    def forward(self, x):
        x = nn.functional.silu(self.fc1(x))
        return self.fc3(nn.functional.silu(self.fc2(x)))


build = Net


def train_state(model):
    return SAM(model.parameters(), torch.optim.SGD, rho=0.05, lr=0.1, momentum=0.9)


def train_step(model, optimizer, batch):
    loss = cross_entropy(model(batch["x"]), batch["target"])
    loss.backward()
    optimizer.first_step()
    sharp = cross_entropy(model(batch["x"]), batch["target"])
    sharp.backward()
    optimizer.second_step()
    return {"loss": loss, "sharp": sharp}
