import torch
from torch import nn
from torch.nn.functional import cross_entropy


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(784, 512)
        self.fc2 = nn.Linear(512, 10)

    def forward(self, x):
        return self.fc2(torch.relu(self.fc1(x)))


build = MLP


def train_state(model):
    return torch.optim.AdamW(model.parameters(), lr=1e-3)


def train_step(model, optimizer, batch):
    optimizer.zero_grad()
    total = 0.0
    for x, label in zip(batch["x"].chunk(2), batch["label"].chunk(2)):
        loss = cross_entropy(model(x), label) / 2
        loss.backward()
        total = total + loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    return {"loss": total}
