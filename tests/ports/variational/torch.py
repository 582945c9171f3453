from typing import NamedTuple

import torch
from torch import Tensor, nn


class Result(NamedTuple):
    reconstruction: Tensor
    mean: Tensor
    logvar: Tensor


class Encoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 8, 4, stride=2, padding=1)
        self.conv2 = nn.Conv2d(8, 16, 4, stride=2, padding=1)
        self.act = nn.LeakyReLU(0.2)
        self.to_mean = nn.Linear(16 * 4 * 3, latent)
        self.to_logvar = nn.Linear(16 * 4 * 3, latent)

    def forward(self, image):
        x = self.act(self.conv2(self.act(self.conv1(image)))).flatten(1)
        return self.to_mean(x), self.to_logvar(x)


class Decoder(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.fc = nn.Linear(latent, 16 * 4 * 3)
        self.up1 = nn.ConvTranspose2d(16, 8, 4, stride=2, padding=1)
        self.up2 = nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1)
        self.act = nn.LeakyReLU(0.2)

    def forward(self, z):
        x = self.act(self.fc(z)).view(-1, 16, 4, 3)
        return torch.sigmoid(self.up2(self.act(self.up1(x))))


class VAE(nn.Module):
    def __init__(self, latent):
        super().__init__()
        self.encoder = Encoder(latent)
        self.decoder = Decoder(latent)

    def forward(self, image):
        mean, logvar = self.encoder(image)
        z = mean
        if self.training:
            z = mean + torch.randn_like(mean) * (0.5 * logvar).exp()
        return Result(self.decoder(z), mean, logvar)


def build(latent=7):
    return VAE(latent)
