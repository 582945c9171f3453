import torch
from torch import autograd, nn
from torch.nn.functional import cross_entropy

ITERATIONS = 30


class Cell(nn.Module):
    def __init__(self):
        super().__init__()
        self.state = nn.Linear(10, 10, bias=False)
        self.input = nn.Linear(6, 10)

    def forward(self, z, x):
        return torch.tanh(0.4 * self.state(z) / self.state.weight.norm() ** 0.5 + self.input(x))


class DEQ(nn.Module):
    def __init__(self):
        super().__init__()
        self.cell = Cell()
        self.head = nn.Linear(10, 4)

    def forward(self, x):
        with torch.no_grad():
            z = torch.zeros(x.shape[0], 10, dtype=x.dtype, device=x.device)
            for _ in range(ITERATIONS):
                z = self.cell(z, x)
        if torch.is_grad_enabled():
            z = self.cell(z, x)
            z0 = z.clone().detach().requires_grad_()
            f0 = self.cell(z0, x)

            def backward_hook(grad):
                g = grad
                for _ in range(ITERATIONS):
                    g = autograd.grad(f0, z0, g, retain_graph=True)[0] + grad
                return g

            z.register_hook(backward_hook)
        return self.head(z)


build = DEQ


def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)


def train_step(model, optimizer, batch):
    loss = cross_entropy(model(batch["x"]), batch["target"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
