import torch
from torch import nn


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(6, 8 * 2 * 2, bias=False)
        self.bn0 = nn.BatchNorm2d(8)
        self.up1 = nn.ConvTranspose2d(8, 6, 4, 2, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(6)
        self.up2 = nn.ConvTranspose2d(6, 1, 4, 2, 1)

    def forward(self, z):
        x = torch.relu(self.bn0(self.fc(z).view(-1, 8, 2, 2)))
        x = torch.relu(self.bn1(self.up1(x)))
        return torch.tanh(self.up2(x))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 6, 4, 2, 1)
        self.conv2 = nn.Conv2d(6, 8, 4, 2, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(8)
        self.out = nn.Conv2d(8, 1, 2)

    def forward(self, x):
        x = nn.functional.leaky_relu(self.conv1(x), 0.2)
        x = nn.functional.leaky_relu(self.bn2(self.conv2(x)), 0.2)
        return self.out(x).view(-1)


class DCGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.netG, self.netD = Generator(), Discriminator()

    def forward(self, z):
        return self.netG(z)


build = DCGAN


def train_state(model):
    return {
        "optimizerD": torch.optim.Adam(model.netD.parameters(), lr=2e-3, betas=(0.5, 0.999)),
        "optimizerG": torch.optim.Adam(model.netG.parameters(), lr=2e-3, betas=(0.5, 0.999)),
    }


def train_step(model, state, batch):
    netG, netD = model.netG, model.netD
    criterion = nn.BCEWithLogitsLoss()
    netD.zero_grad()
    output = netD(batch["real"])
    label = torch.full_like(output, 1.0)
    errD_real = criterion(output, label)
    errD_real.backward()
    fake = netG(batch["z"])
    output = netD(fake.detach())
    errD_fake = criterion(output, torch.zeros_like(label))
    errD_fake.backward()
    state["optimizerD"].step()

    netG.zero_grad()
    errG = criterion(netD(fake), label)
    errG.backward()
    state["optimizerG"].step()
    return {"errD": errD_real + errD_fake, "errG": errG}
