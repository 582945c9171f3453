import torch
from torch import nn
from torch.nn import functional as F


def newton_schulz(G, steps=5):
    a, b, c = (3.4445, -4.7750, 2.0315)
    X = G.T if G.size(0) > G.size(1) else G
    X = X / (X.norm() + 1e-7)
    for _ in range(steps):
        A = X @ X.T
        B = b * A + c * A @ A
        X = a * X + B @ X
    return X.T if G.size(0) > G.size(1) else X


class Muon(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, momentum=0.95, weight_decay=0.01):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if "momentum_buffer" not in state:
                    state["momentum_buffer"] = torch.zeros_like(p)
                buf = state["momentum_buffer"]
                buf.lerp_(p.grad, 1 - group["momentum"])
                update = newton_schulz(p.grad.lerp(buf, group["momentum"]))
                update = update * max(1, p.size(0) / p.size(1)) ** 0.5
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(update, alpha=-group["lr"])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Linear(12, 16)
        self.up = nn.Linear(16, 32, bias=False)
        self.down = nn.Linear(32, 16, bias=False)
        self.head = nn.Linear(16, 6)

    def forward(self, x):
        x = self.embed(x)
        x = x + self.down(F.gelu(self.up(x)))
        return self.head(x)


build = Net


def train_state(model):
    hidden = [model.up.weight, model.down.weight]
    others = [*model.embed.parameters(), *model.head.parameters()]
    return {
        "muon": Muon(hidden),
        "adamw": torch.optim.AdamW(others, lr=3e-3, betas=(0.9, 0.95), weight_decay=0.01),
    }


def train_step(model, state, batch):
    loss = F.cross_entropy(model(batch["x"]), batch["target"])
    for optimizer in state.values():
        optimizer.zero_grad()
    loss.backward()
    for optimizer in state.values():
        optimizer.step()
    return {"loss": loss}
