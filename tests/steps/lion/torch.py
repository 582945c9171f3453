import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Lion(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                state = self.state[p]
                if len(state) == 0:
                    state["exp_avg"] = torch.zeros_like(p)
                exp_avg = state["exp_avg"]
                p.mul_(1 - group["lr"] * group["weight_decay"])
                update = (exp_avg * beta1 + p.grad * (1 - beta1)).sign_()
                p.add_(update, alpha=-group["lr"])
                exp_avg.mul_(beta2).add_(p.grad, alpha=1 - beta2)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Linear(10, 20)
        self.norm = nn.LayerNorm(20)
        self.head = nn.Linear(20, 4)

    def forward(self, x):
        return self.head(torch.tanh(self.norm(self.conv(x))))


build = Net


def train_state(model):
    return Lion(model.parameters(), lr=1e-3, weight_decay=0.1)


def train_step(model, optimizer, batch):
    loss = cross_entropy(model(batch["x"]), batch["target"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
