"""Training steps with mistakes outside of their losses: in an optimizer, in loops, in copies of the model, in what is given."""

from helpers.stepmistakes import CLASSES, NET, START, Planted, planted

# Sharpness-aware minimisation, around an optimizer of torch.
AROUND = {
    "spec": CLASSES,
    "torch": START
    + """
class Around(torch.optim.Optimizer):
    def __init__(self, params, radius, **settings):
        super().__init__(params, dict(radius=radius, **settings))
        self.inner = torch.optim.SGD(self.param_groups, **settings)
        self.param_groups = self.inner.param_groups
    @torch.no_grad()
    def ascend(self):
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["before"] = p.detach().clone()
                move = group["radius"] * p.grad / p.grad.norm()
                p.add_(move)
        self.zero_grad()
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.copy_(self.state[p]["before"])
        self.inner.step()
        self.zero_grad()
"""
    + NET
    + """
def train_state(model):
    return Around(model.parameters(), radius=0.3, lr=0.1, momentum=0.9)

def train_step(model, optimizer, batch):
    first = F.cross_entropy(model(batch["x"]), batch["target"])
    first.backward()
    optimizer.ascend()
    second = F.cross_entropy(model(batch["x"]), batch["target"])
    second.backward()
    optimizer.step()
    return {"first": first, "second": second}
""",
}

# Steps within a step, and an optimizer of the user's own.
INNER = {
    "spec": """
from xverify import ModelSpec, TensorSpec
POINTS = TensorSpec(("N", 6))
SPEC = ModelSpec(
    inputs={"x": POINTS}, outputs={"y": TensorSpec(("N", 3))},
    targets={"y": TensorSpec(("N", 3)), "later": POINTS, "answer": TensorSpec(("N", 3))}, batch=8,
)
""",
    "torch": START
    + """
from torch.func import functional_call

class Ratio(torch.optim.Optimizer):
    def __init__(self, params, lr=0.02, weight_decay=0.1):
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                mean.lerp_(p.grad, 0.2)
                update = mean / (1 + mean.norm())
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * p.norm() * update)

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(6, 16), nn.Linear(16, 3)
    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))
build = Net

def train_state(model):
    return Ratio(model.parameters())

def train_step(model, optimizer, batch):
    fast = dict(model.named_parameters())
    for _ in range(3):
        inner = F.mse_loss(functional_call(model, fast, (batch["x"],)), batch["y"])
        slopes = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
        fast = {name: weight - 0.3 * slope for (name, weight), slope in zip(fast.items(), slopes)}
    loss = F.mse_loss(functional_call(model, fast, (batch["later"],)), batch["answer"])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
""",
}

# A network that learns what a slow copy of it says of the next state, as in Q-learning.
COPY = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"now": TensorSpec(("N", 6))}, outputs={"q": TensorSpec(("N", 4))},
    targets={"next": TensorSpec(("N", 6)), "action": TensorSpec(("N",), "int64", 0, 3), "reward": TensorSpec(("N",))}, batch=16,
)
""",
    "torch": START
    + """
import copy

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 4))
    def forward(self, now):
        return self.body(now)
build = Net

def train_state(model):
    target = copy.deepcopy(model)
    with torch.no_grad():
        for each in target.parameters():
            each.mul_(0.5)
    return {"sgd": torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9, weight_decay=0.01), "target": target}

def train_step(model, state, batch):
    q = model(batch["now"]).gather(1, batch["action"][:, None])[:, 0]
    with torch.no_grad():
        best = state["target"](batch["next"]).max(1).values
    loss = F.mse_loss(q, batch["reward"] + 0.9 * best)
    state["sgd"].zero_grad()
    loss.backward()
    state["sgd"].step()
    return {"loss": loss}
""",
}

SEQUENCES = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 12, 5))}, outputs={"scores": TensorSpec(("N", 12, 6))},
    targets={
        "labels": TensorSpec(("N", 4), "int64", 1, 5), "size": TensorSpec(("N",), "int64", 2, 5),
        "steps": TensorSpec(("N",), "int64", 9, 13),
    }, batch=6,
)
""",
    "torch": START
    + """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(5, 16), nn.Linear(16, 6)
    def forward(self, x):
        return self.b(torch.tanh(self.a(x)))
build = Net

def train_state(model):
    return torch.optim.SGD(model.parameters(), lr=0.05)

def train_step(model, optimizer, batch):
    scores = model(batch["x"]).log_softmax(-1).transpose(0, 1)
    loss = F.ctc_loss(scores, batch["labels"], batch["steps"], batch["size"], blank=0)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
""",
}

# An optimizer of the user's own with two betas, and labels of 0 and 1.
SIGNS = {
    "spec": """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(
    inputs={"x": TensorSpec(("N", 12))}, outputs={"logits": TensorSpec(("N", 5))},
    targets={"y": TensorSpec(("N", 5), "int64", 0, 2)}, batch=16,
)
""",
    "torch": START
    + """
class Signs(torch.optim.Optimizer):
    def __init__(self, params, lr):
        super().__init__(params, dict(lr=lr, betas=(0.9, 0.99), weight_decay=0.1))
    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                mean = self.state[p].setdefault("mean", torch.zeros_like(p))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.sub_(group["lr"] * mean.lerp(p.grad, 1 - group["betas"][0]).sign())
                mean.lerp_(p.grad, 1 - group["betas"][1])
"""
    + NET
    + """
def train_state(model):
    return Signs(model.parameters(), lr=1e-3)

def train_step(model, optimizer, batch):
    y = batch["y"].to(batch["x"].dtype)
    loss = F.binary_cross_entropy_with_logits(model(batch["x"]), y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return {"loss": loss}
""",
}
SCORES, BCE = 'model(batch["x"]), y)', 'F.binary_cross_entropy_with_logits(model(batch["x"]), y)'

# Kind -> its files and the mistakes of its port, as in ``stepmistakes``.
OUTSIDE = {
    "around": (AROUND, [
        planted("radius", "radius=0.3", "radius=0.05", "behaves as radius 0.05; torch.py says 0.3"),
        planted("inner nesterov", "momentum=0.9)", "momentum=0.9, nesterov=True)",
                "behaves with Nesterov momentum"),
        Planted("first gradients", (
                ("    optimizer.ascend()\n", "    given = [p.grad.clone() for p in model.parameters()]\n    optimizer.ascend()\n"),
                ("    second.backward()\n", "    second.backward()\n    for p, gradient in zip(model.parameters(), given):\n"
                 "        p.grad = gradient\n"),
                ), ("the gradients of the first backward pass of a step",)),
        planted("descent", "p.add_(move)", "p.sub_(move)", "subtracts what torch.py adds"),
        planted("stays", 'p.copy_(self.state[p]["before"])', "pass", "leaves out a change of a tensor in place"),
    ]),
    "inner": (INNER, [
        planted("inner rate", "0.3 * slope", "0.2 * slope", "has 0.2 for a factor; torch.py 0.3"),
        planted("fewer steps", "range(3)", "range(2)", "leaves out the last pass of a loop"),
        planted("first order", "create_graph=True)", "create_graph=True)\n        slopes = [s.detach() for s in slopes]",
                "first order"),
        planted("other inputs", 'fast, (batch["x"],)), batch["y"]', 'fast, (batch["later"],)), batch["answer"]',
                "takes the inputs 'later' and 'answer' where torch.py takes 'x' and 'y'"),
        planted("other target", 'batch["answer"])', 'batch["y"])', "takes input 'y' where torch.py takes 'answer'"),
        planted("no ratio", " * p.norm()", "", "leaves out the"),
        planted("no decay", '                p.mul_(1 - group["lr"] * group["weight_decay"])\n', "",
                "weight decay 0; torch.py says 0.1"),
        planted("sum", "mean.lerp_(p.grad, 0.2)", "mean.mul_(0.8).add_(p.grad)", "with weight 1, where torch.py averages"),
    ]),
    "copy": (COPY, [
        planted("itself", 'state["target"](batch', 'model(batch', "with the model itself where torch.py computes with a copy"),
        planted("now for next", 'state["target"](batch["next"])', 'state["target"](batch["now"])',
                "takes input 'now' where torch.py takes 'next'"),
        planted("action plus one", 'batch["action"][:, None]', '(batch["action"] + 1)[:, None]', "takes input 'action' plus one"),
        planted("decay twice", "    state[\"sgd\"].step()\n",
                "    for p in model.parameters():\n        p.data.mul_(1 - 0.05 * 0.01)\n    state[\"sgd\"].step()\n",
                "shrinks the weights by a weight decay of 0.01 (decoupled, as in AdamW); torch.py has none of that kind"),
    ]),
    "sequences": (SEQUENCES, [
        planted("blank", "blank=0", "blank=5", "takes class 5 as the blank of its ctc_loss; torch.py class 0"),
        planted("lengths", 'batch["size"], blank', 'torch.full_like(batch["size"], 4), blank', "ignores the lengths of the labels"),
        planted("steps", 'batch["steps"], batch', 'torch.full_like(batch["steps"], 12), batch',
                "ignores the lengths of the inputs"),
        planted("plain mean", "blank=0)", "blank=0, reduction='none').mean()", "does not divide each ctc_loss by the length"),
        planted("sum", "blank=0)", "blank=0, reduction='sum')", "sums up ctc_loss, which torch.py averages"),
    ]),
    "signs": (SIGNS, [
        planted("adamw", "Signs(model.parameters(), lr=1e-3)",
                "torch.optim.AdamW(model.parameters(), lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)",
                "is AdamW; torch.py has Signs"),
        planted("sigmoid twice", SCORES, SCORES.replace(", y", ".sigmoid(), y"), "takes the sigmoid twice"),
        planted("probabilities", BCE, 'F.binary_cross_entropy(model(batch["x"]).clamp(1e-7, 1 - 1e-7), y)',
                "takes the scores of its binary_cross_entropy_with_logits for probabilities"),
        planted("saturating", BCE, "-" + BCE.replace(", y", ", 1 - y"), "the saturating loss of a generator"),
    ]),
}  # fmt: skip
