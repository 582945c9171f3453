import torch
from torch import nn
from torch.distributions import Categorical

CLIP, VALUE_COEF, ENTROPY_COEF, MAX_NORM = 0.2, 0.5, 0.01, 0.5


class ActorCritic(nn.Module):
    def __init__(self):
        super().__init__()
        self.actor = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
        self.critic = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 1))

    def forward(self, obs):
        return self.actor(obs), self.critic(obs).squeeze(-1)


build = ActorCritic


def train_state(model):
    return torch.optim.Adam(model.parameters(), lr=2.5e-3, eps=1e-5)


def train_step(model, optimizer, batch):
    logits, value = model(batch["obs"])
    policy = Categorical(logits=logits)
    ratio = (policy.log_prob(batch["action"]) - batch["old_logp"]).exp()
    advantage = batch["advantage"]
    advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    unclipped = -advantage * ratio
    clipped = -advantage * torch.clamp(ratio, 1 - CLIP, 1 + CLIP)
    policy_loss = torch.max(unclipped, clipped).mean()

    returns, old_value = batch["returns"], batch["old_value"]
    near = old_value + torch.clamp(value - old_value, -CLIP, CLIP)
    value_loss = 0.5 * torch.max((value - returns) ** 2, (near - returns) ** 2).mean()

    entropy = policy.entropy().mean()
    loss = policy_loss + VALUE_COEF * value_loss - ENTROPY_COEF * entropy
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), MAX_NORM)
    optimizer.step()
    return {"policy": policy_loss, "value": value_loss, "entropy": entropy}
