import torch
from torch import nn
from torch.nn.functional import cross_entropy


class Lamb(torch.optim.Optimizer):
    def __init__(self, params, lr=1e-3, betas=(0.9, 0.999), eps=1e-6, weight_decay=0.0):
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            beta1, beta2 = group["betas"]
            for p in group["params"]:
                if p.grad is None:
                    continue
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p)
                    state["exp_avg_sq"] = torch.zeros_like(p)
                state["step"] += 1
                m, v = state["exp_avg"], state["exp_avg_sq"]
                m.mul_(beta1).add_(p.grad, alpha=1 - beta1)
                v.mul_(beta2).addcmul_(p.grad, p.grad, value=1 - beta2)
                m_hat = m / (1 - beta1 ** state["step"])
                v_hat = v / (1 - beta2 ** state["step"])
                update = m_hat / (v_hat.sqrt() + group["eps"]) + group["weight_decay"] * p
                weight_norm, update_norm = p.norm(), update.norm()
                trust = torch.where((weight_norm > 0) & (update_norm > 0), weight_norm / update_norm, 1.0)
                p.sub_(group["lr"] * trust * update)


class Classifier(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(10, 24)
        self.norm = nn.LayerNorm(24)
        self.fc2 = nn.Linear(24, 5)

    def forward(self, x):
        return self.fc2(torch.relu(self.norm(self.fc1(x))))


build = Classifier


def train_state(model):
    return Lamb(model.parameters(), lr=0.01, weight_decay=0.1)


def train_step(model, optimizer, batch):
    loss = cross_entropy(model(batch["x"]), batch["target"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
