import jittor as jt
from jittor import nn


class Encoder(nn.Module):
    def __init__(self, latent):
        self.conv1 = nn.Conv2d(1, 8, 4, 2, 1)
        self.conv2 = nn.Conv2d(8, 16, 4, 2, 1)
        self.act = nn.LeakyReLU(0.2)
        self.to_mean = nn.Linear(16 * 4 * 3, latent)
        self.to_logvar = nn.Linear(16 * 4 * 3, latent)

    def execute(self, image):
        x = self.act(self.conv1(image))
        x = self.act(self.conv2(x))
        x = x.reshape(x.shape[0], -1)
        return self.to_mean(x), self.to_logvar(x)


class Decoder(nn.Module):
    def __init__(self, latent):
        self.fc = nn.Linear(latent, 16 * 4 * 3)
        self.up1 = nn.ConvTranspose2d(16, 8, 4, 2, 1)
        self.up2 = nn.ConvTranspose2d(8, 1, 4, 2, 1)
        self.act = nn.LeakyReLU(0.2)

    def execute(self, z):
        x = self.act(self.fc(z)).reshape(-1, 16, 4, 3)
        x = self.act(self.up1(x))
        return jt.sigmoid(self.up2(x))


class VAE(nn.Module):
    def __init__(self, latent):
        self.encoder = Encoder(latent)
        self.decoder = Decoder(latent)

    def sample(self, mean, logvar):
        if not self.is_training():
            return mean
        return mean + jt.randn(mean.shape) * jt.exp(logvar / 2)

    def execute(self, image):
        mean, logvar = self.encoder(image)
        return self.decoder(self.sample(mean, logvar)), mean, logvar


def build(latent=7):
    return VAE(latent)
