import torch
from torch import nn

MEAN = [48.0, 52.5, 50.0, 41.0, 55.0]
STD = [28.0, 30.5, 25.0, 33.0, 29.0]


class WideAndDeep(nn.Module):
    def __init__(self, cities, devices, hours):
        super().__init__()
        self.devices = devices
        self.register_buffer("mean", torch.tensor(MEAN), persistent=False)
        self.register_buffer("std", torch.tensor(STD), persistent=False)
        self.city = nn.Embedding(cities, 8)
        self.device = nn.Embedding(devices, 3)
        self.hour = nn.Embedding(hours, 5)
        self.cross = nn.Embedding(cities * devices, 1)
        self.wide = nn.Linear(5, 1, bias=False)
        self.deep = nn.Sequential(
            nn.Linear(8 + 3 + 5 + 5, 32),
            nn.ReLU(),
            nn.Linear(32, 16),
            nn.ReLU(),
            nn.Linear(16, 1),
        )

    def forward(self, city, device, hour, numbers):
        numbers = (numbers - self.mean) / self.std
        wide = self.cross(city * self.devices + device) + self.wide(numbers)
        deep = self.deep(torch.cat([self.city(city), self.device(device), self.hour(hour), numbers], 1))
        return torch.sigmoid(wide + deep)


def build(cities=40, devices=6, hours=24):
    return WideAndDeep(cities, devices, hours)
