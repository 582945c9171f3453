from jittor import nn


class Expert(nn.Module):
    def __init__(self, dim, hidden):
        self.fc1 = nn.Linear(dim, hidden)
        self.fc2 = nn.Linear(hidden, dim)

    def execute(self, x):
        x = nn.gelu(self.fc1(x))
        return self.fc2(x)


class Mixture(nn.Module):
    def __init__(self, dim, hidden, experts, temperature):
        self.temperature = temperature
        self.norm = nn.LayerNorm(dim)
        self.gate = nn.Linear(dim, experts, bias=False)
        self.softmax = nn.Softmax(dim=-1)
        self.experts = nn.ModuleList([Expert(dim, hidden) for _ in range(experts)])
        self.head = nn.Linear(dim, 6)

    def execute(self, tokens):
        x = self.norm(tokens)
        logits = self.gate(x) / self.temperature
        share = self.softmax(logits)
        y = tokens
        for k, expert in enumerate(self.experts):
            y = y + share[:, :, k : k + 1] * expert(x)
        return self.head(y), share.mean(1)


def build(dim=12, hidden=20, experts=4, temperature=0.5):
    return Mixture(dim, hidden, experts, temperature)
