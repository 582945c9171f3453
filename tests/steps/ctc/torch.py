import torch
from torch import nn
from torch.nn import functional as F


class Recogniser(nn.Module):
    def __init__(self):
        super().__init__()
        self.frame = nn.Linear(6, 20)
        self.rnn = nn.GRU(20, 12, batch_first=True)
        self.head = nn.Linear(12, 8)

    def forward(self, sound):
        x, _ = self.rnn(torch.relu(self.frame(sound)))
        return self.head(x)


build = Recogniser


def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, nesterov=True)


def train_step(model, optimizer, batch):
    log_probs = model(batch["sound"]).log_softmax(-1).transpose(0, 1)
    loss = F.ctc_loss(log_probs, batch["labels"], batch["lengths"], batch["label_lengths"], blank=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"ctc": loss}
