import jittor as jt
from jittor import nn

MEAN = [48.0, 52.5, 50.0, 41.0, 55.0]
STD = [28.0, 30.5, 25.0, 33.0, 29.0]


class WideAndDeep(nn.Module):
    def __init__(self, cities, devices, hours):
        self.devices = devices
        # Jittor takes attributes for parameters unless their names begin with an underscore.
        self._mean, self._std = jt.array(MEAN), jt.array(STD)
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

    def execute(self, city, device, hour, numbers):
        numbers = (numbers - self._mean) / self._std
        features = [self.city(city), self.device(device), self.hour(hour), numbers]
        deep = self.deep(jt.concat(features, dim=1))
        return (self.wide(numbers) + self.cross(city * self.devices + device) + deep).sigmoid()


def build(cities=40, devices=6, hours=24):
    return WideAndDeep(cities, devices, hours)
