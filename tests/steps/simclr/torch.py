import torch
from torch import nn
from torch.nn import functional as F

TEMPERATURE = 0.5


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(10, 20)
        self.projector = nn.Sequential(nn.Linear(20, 20), nn.ReLU(), nn.Linear(20, 8))

    def forward(self, view1):
        return self.projector(torch.tanh(self.backbone(view1)))


build = Encoder


def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-2)


def info_nce(features):
    count = features.shape[0] // 2
    labels = torch.cat([torch.arange(count) for _ in range(2)])
    labels = (labels[None] == labels[:, None]).to(features.device)
    features = F.normalize(features, dim=1)
    similarity = features @ features.T
    self_mask = torch.eye(2 * count, dtype=torch.bool, device=features.device)
    labels = labels[~self_mask].view(2 * count, -1)
    similarity = similarity[~self_mask].view(2 * count, -1)
    positives = similarity[labels].view(2 * count, -1)
    negatives = similarity[~labels].view(2 * count, -1)
    logits = torch.cat([positives, negatives], dim=1) / TEMPERATURE
    return F.cross_entropy(logits, torch.zeros(2 * count, dtype=torch.long, device=features.device))


def train_step(model, optimizer, batch):
    loss = info_nce(model(torch.cat([batch["view1"], batch["view2"]])))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"nt_xent": loss}
