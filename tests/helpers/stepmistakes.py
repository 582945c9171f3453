"""Training steps of four kinds, with mistakes of their ports, and what a report must say of each."""

from dataclasses import dataclass

START = """
import torch
from torch import nn
from torch.nn import functional as F
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(12, 24), nn.Linear(24, 5)
    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))
build = Net
"""
CLASSES = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 12))}, outputs={"logits": TensorSpec(("N", 5))}, batch=16)
"""

MLP = {
    "spec": CLASSES,
    "torch": START
    + NET
    + """
def train_state(model):
    sgd = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    return {"sgd": sgd, "rates": torch.optim.lr_scheduler.LambdaLR(sgd, lambda step: (step + 1) / 4)}

def train_step(model, state, batch):
    loss = F.cross_entropy(model(batch["x"]), batch["target"])
    state["sgd"].zero_grad()
    loss.backward()
    state["sgd"].step()
    state["rates"].step()
    return {"loss": loss}
""",
}

CNN = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(inputs={"x": TensorSpec(("N", 3, 8, 8))}, outputs={"logits": TensorSpec(("N", 5))}, batch=8)
""",
    "torch": START
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm, self.head = nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.Linear(8, 5)
    def forward(self, x):
        return self.head(F.silu(self.norm(self.conv(x))).mean((2, 3)))
build = Net

def train_state(model):
    return {"adam": torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99), eps=1e-5)}

def train_step(model, state, batch):
    logits = model(batch["x"])
    loss = F.cross_entropy(logits, batch["target"])
    state["adam"].zero_grad()
    loss.backward()
    state["adam"].step()
    return {"loss": loss}
""",
}

BLOCK = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 6, 12))}, outputs={"y": TensorSpec(("N", 6, 12))},
    targets={"y": TensorSpec(("N", 6, 12))}, batch=8,
)
""",
    "torch": START
    + """
class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.qkv, self.out = nn.LayerNorm(12), nn.Linear(12, 36), nn.Linear(12, 12)
        self.norm2, self.up, self.down = nn.LayerNorm(12), nn.Linear(12, 24), nn.Linear(24, 12)
    def forward(self, x):
        q, k, v = self.qkv(self.norm1(x)).chunk(3, -1)
        x = x + self.out(F.scaled_dot_product_attention(q, k, v))
        return x + self.down(F.gelu(self.up(self.norm2(x))))
build = Block

def train_state(model):
    decayed = [each for each in model.parameters() if each.dim() > 1]
    others = [each for each in model.parameters() if each.dim() < 2]
    groups = [{"params": decayed, "weight_decay": 0.5}, {"params": others, "weight_decay": 0.0}]
    return {"adamw": torch.optim.AdamW(groups, lr=0.02, betas=(0.9, 0.98))}

def train_step(model, state, batch):
    adamw, total = state["adamw"], 0.0
    adamw.zero_grad()
    for part in range(2):
        half = slice(4 * part, 4 * part + 4)
        loss = F.mse_loss(model(batch["x"][half]), batch["y"][half]) / 2
        loss.backward()
        total += loss.detach()
    nn.utils.clip_grad_norm_(model.parameters(), 0.1)
    adamw.step()
    return {"loss": total}
""",
}

PAIRS = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 10))}, outputs={"z": TensorSpec(("N", 8))},
    targets={"other": TensorSpec(("N", 10))}, batch=12,
)
""",
    "torch": START
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(10, 24), nn.Tanh(), nn.Linear(24, 8))
        self.predictor = nn.Linear(8, 8)
    def forward(self, x):
        return self.encoder(x)
build = Net

def train_state(model):
    return {"sgd": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)}

def train_step(model, state, batch):
    first, second = model.encoder(batch["x"]), model.encoder(batch["other"])
    scores = F.normalize(first, dim=1) @ F.normalize(second, dim=1).T / 0.2
    labels = torch.arange(len(scores))
    contrast = F.cross_entropy(scores, labels)
    predicted = model.predictor(first)
    match = F.mse_loss(predicted, second.detach())
    loss = contrast + 0.5 * match
    state["sgd"].zero_grad()
    loss.backward()
    state["sgd"].step()
    return {"contrast": contrast, "match": match, "loss": loss}
""",
}

# Adam without the correction of the bias of its moments.
UNCORRECTED = """class Uncorrected(torch.optim.Adam):
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for each in group["params"]:
                kept = self.state[each]
                m, v = kept.setdefault("m", torch.zeros_like(each)), kept.setdefault("v", torch.zeros_like(each))
                m.lerp_(each.grad, 1 - group["betas"][0])
                v.lerp_(each.grad.square(), 1 - group["betas"][1])
                each -= group["lr"] * m / (v.sqrt() + group["eps"])

build = """


@dataclass(frozen=True)
class Planted:
    """One mistake of a port. changes: (text of torch.py, text in its place). says: all of these texts stand in the report."""

    name: str
    changes: tuple[tuple[str, str], ...]
    says: tuple[str, ...]


def planted(name, old, new, *says):
    return Planted(name, ((old, new),), says)


SGD, RATES = "momentum=0.9, weight_decay=0.01", "lambda step: (step + 1) / 4"
ADAM = "torch.optim.Adam(model.parameters(), lr=2e-3, betas=(0.9, 0.99), eps=1e-5)"
CE = 'F.cross_entropy(model(batch["x"]), batch["target"])'
MATCH = "match = F.mse_loss(predicted, second.detach())"
CLIP = "nn.utils.clip_grad_norm_(model.parameters(), 0.1)"

# Kind -> its files and the mistakes of its port.
STEPS = {
    "mlp": (MLP, [
        planted("momentum", SGD, "momentum=0.5, weight_decay=0.01", "momentum 0.5; torch.py says 0.9"),
        planted("no momentum", SGD, "weight_decay=0.01", "momentum 0; torch.py says 0.9"),
        planted("nesterov", SGD, f"{SGD}, nesterov=True", "with Nesterov momentum"),
        planted("dampening", SGD, f"{SGD}, dampening=0.9", "dampening 0.9; torch.py says 0"),
        planted("no decay", SGD, "momentum=0.9", "weight decay 0; torch.py says 0.01"),
        planted("more decay", SGD, "momentum=0.9, weight_decay=0.05", "weight decay 0.05; torch.py says 0.01"),
        planted("rate", "lr=0.1,", "lr=0.13,", "learning rate 0.0325; it should be 0.025"),
        planted("schedule ahead", RATES, "lambda step: (step + 2) / 4",
                "the schedule of the learning rate of optimizer 'sgd' is one step ahead"),
        planted("schedule behind", RATES, "lambda step: (max(step, 1) + 0) / 4",
                "the schedule of the learning rate of optimizer 'sgd' is one step behind"),
        planted("no schedule", RATES, "lambda step: 1 / 4", "the learning rate of optimizer 'sgd' does not change"),
        planted("sum for mean", CE, f"{CE[:-1]}, reduction='sum')", "sums up cross_entropy, which torch.py averages"),
        planted("softmax twice", CE, CE.replace("), batch", ").softmax(1), batch"), "takes the softmax twice"),
        planted("probabilities", CE, CE.replace("), batch", ").clamp(1e-7, 1 - 1e-7).log(), batch"),
                "takes the scores of its cross_entropy for probabilities"),
        planted("label smoothing", CE, f"{CE[:-1]}, label_smoothing=0.1)", "label smoothing"),
        planted("not zeroed", '    state["sgd"].zero_grad()\n', "", "not zeroed"),
        planted("clipped", "    loss.backward()\n", "    loss.backward()\n    nn.utils.clip_grad_norm_(model.parameters(), 0.37)\n",
                "clipped at norm 0.37"),
        planted("vectors not decayed", "model.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01",
                "[{'params': [each for each in "
                "model.parameters() if each.dim() > 1], 'weight_decay': 0.01}, {'params': [each for each in model.parameters() if "
                "each.dim() < 2]}], lr=0.1, momentum=0.9", "applies no weight decay to biases"),
    ]),
    "cnn": (CNN, [
        planted("norm momentum 0.9", "nn.BatchNorm2d(8)", "nn.BatchNorm2d(8, momentum=0.9)",
                "momentum weighs the old value instead of the new one"),
        planted("norm momentum 0.01", "nn.BatchNorm2d(8)", "nn.BatchNorm2d(8, momentum=0.01)",
                "the momentum of the batch norms is 0.01; torch.py says 0.1"),
        planted("norm twice", "    logits = model", "    model(batch['x'])\n    logits = model", "updated twice with each batch"),
        planted("eval mode", "    logits = model", "    model.eval()\n    logits = model", "inference mode"),
        planted("eps 1e-8", "eps=1e-5", "eps=1e-8", "eps 1e-08"),
        planted("eps 1e-3", "eps=1e-5", "eps=1e-3", "eps 0.001"),
        planted("eps 1e-7", "eps=1e-5", "eps=1e-7", "eps 1e-07"),
        planted("beta1", "(0.9, 0.99)", "(0.5, 0.99)", "beta1 0.5; torch.py says 0.9"),
        planted("beta2", "(0.9, 0.99)", "(0.9, 0.999)", "beta2 0.999; torch.py says 0.99"),
        planted("nadam", ADAM, ADAM.replace("Adam(", "NAdam("), "Nadam"),
        planted("amsgrad", "eps=1e-5", "eps=1e-5, amsgrad=True", "behaves as AMSGrad"),
        planted("adamw", ADAM, ADAM.replace("Adam(", "AdamW("), "weight decay of 0.01 (decoupled, as in AdamW); torch.py has none"),
        Planted("no bias correction", (("build = ", UNCORRECTED), ("torch.optim.Adam(model",
                "Uncorrected(model")), ("does not correct the bias of its moments",)),
        planted("rate", "lr=2e-3", "lr=1e-3", "learning rate 0.001; it should be 0.002"),
        planted("ascent", "loss.backward()", "(-loss).backward()", "opposite sign"),
    ]),
    "block": (BLOCK, [
        planted("no clipping", f"    {CLIP}\n", "", "clipping is missing"),
        planted("clip values", CLIP, "nn.utils.clip_grad_value_(model.parameters(), 0.01)",
                "clips each value of the gradients at 0.01"),
        planted("clip each", CLIP, "[nn.utils.clip_grad_norm_([each], 0.1) for each in model.parameters()]",
                "clips the gradient of each parameter by its own norm at 0.1"),
        planted("coupled", "torch.optim.AdamW(", "torch.optim.Adam(", "weight decay", "to the gradient"),
        planted("all decayed", '"weight_decay": 0.0', '"weight_decay": 0.5',
                "weight decay 0.5 to biases and the weights of normalisations"),
        planted("none decayed", '"weight_decay": 0.5', '"weight_decay": 0.0', "weight decay 0; torch.py says 0.5"),
        planted("beta2", "(0.9, 0.98)", "(0.9, 0.999)", "beta2 0.999; torch.py says 0.98"),
        planted("no division", 'batch["y"][half]) / 2', 'batch["y"][half])', "does not scale"),
        planted("last part", "        loss.backward()\n", "        adamw.zero_grad()\n        loss.backward()\n",
                "last backward pass"),
        planted("clip before unscaling", f"    {CLIP}\n", f"    for each in model.parameters():\n        each.grad.mul_(1024)\n"
                f"    {CLIP}\n    for each in model.parameters():\n        each.grad.div_(1024)\n", "before a loss scale of 1024"),
        planted("rate", "lr=0.02", "lr=0.01", "learning rate 0.01; it should be 0.02"),
    ]),
    "pairs": (PAIRS, [
        planted("weight 1", "0.5 * match", "match", "does not scale; torch.py multiplies by 0.5"),
        planted("weight 0.3", "0.5 * match", "0.3 * match", "has 0.3 for a factor; torch.py 0.5"),
        planted("no match", " + 0.5 * match", "", "leaves out the second term of a sum"),
        planted("sign", "+ 0.5", "- 0.5", "subtracts what torch.py adds"),
        planted("sum for mean", MATCH, MATCH[:-1] + ", reduction='sum')", "sums up mse_loss, which torch.py averages"),
        planted("temperature", "/ 0.2", "/ 0.1", "has 0.1 for a divisor; torch.py 0.2"),
        planted("no detach", "second.detach()", "second", "detach is missing"),
        planted("detached", "model.predictor(first)", "model.predictor(first.detach())",
                "stops the gradient at the input of `predictor`"),
        planted("transposed", "F.cross_entropy(scores, labels)", "F.cross_entropy(scores.T, labels)", "transposed"),
        planted("smoothing", "F.cross_entropy(scores, labels)", "F.cross_entropy(scores, labels, label_smoothing=0.1)",
                "label smoothing"),
        planted("momentum", "momentum=0.9", "momentum=0.99", "momentum 0.99; torch.py says 0.9"),
    ]),
}  # fmt: skip


def wrong(files, mistake):
    """The files of a kind with the port that has a mistake."""
    text = files["torch"]
    for old, new in mistake.changes:
        assert old in text, (mistake.name, old)
        text = text.replace(old, new)
    return {**files, "torch-port": text}
