import torch.nn.functional as F
from torch import nn
from torch.nn.utils.parametrizations import spectral_norm


class Critic(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = spectral_norm(nn.Linear(9, 14))
        self.fc2 = nn.utils.spectral_norm(nn.Linear(14, 12))
        self.fc3 = spectral_norm(nn.Linear(12, 14, bias=False))
        self.head = nn.Linear(14, 4)

    def forward(self, rows):
        x = F.leaky_relu(self.fc1(rows), 0.2)
        y = F.leaky_relu(self.fc2(x), 0.2)
        return self.head(x + self.fc3(y))


def build():
    return Critic()
