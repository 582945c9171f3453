import torch
from torch import nn

PENALTY = 10.0


class WGAN(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator = nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 6))
        self.critic = nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, z):
        return self.generator(z)


build = WGAN


def train_state(model):
    return {
        "critic": torch.optim.Adam(model.critic.parameters(), lr=1e-3, betas=(0.0, 0.9)),
        "generator": torch.optim.Adam(model.generator.parameters(), lr=5e-4, betas=(0.0, 0.9)),
    }


def gradient_penalty(critic, real, fake, mix):
    between = (mix * real + (1 - mix) * fake).requires_grad_(True)
    score = critic(between)
    (slope,) = torch.autograd.grad(score, between, torch.ones_like(score), create_graph=True, retain_graph=True)
    return ((slope.norm(2, dim=1) - 1) ** 2).mean()


def train_step(model, state, batch):
    real = batch["real"]
    fake = model.generator(batch["z"]).detach()
    distance = model.critic(real).mean() - model.critic(fake).mean()
    penalty = gradient_penalty(model.critic, real, fake, batch["mix"])
    critic_loss = PENALTY * penalty - distance
    state["critic"].zero_grad()
    critic_loss.backward()
    state["critic"].step()

    generator_loss = -model.critic(model.generator(batch["z"])).mean()
    state["generator"].zero_grad()
    generator_loss.backward()
    state["generator"].step()
    return {"critic": critic_loss, "generator": generator_loss, "penalty": penalty}
