import torch
from torch import distributed, nn
from torch.distributed.tensor import Shard, distribute_tensor
from torch.nn.functional import embedding, gelu, linear

VOCABULARY, DIM, HIDDEN = 11, 8, 16


class Copied(torch.autograd.Function):
    """The identity of a tensor that every rank has, which a part of a layer uses: gradients are summed over the ranks."""

    @staticmethod
    def forward(context, x):
        return x.view_as(x)

    @staticmethod
    def backward(context, gradient):
        return total(gradient)


class Summed(torch.autograd.Function):
    """The sum over the ranks, which every rank uses in the same way."""

    @staticmethod
    def forward(context, x):
        return total(x)

    @staticmethod
    def backward(context, gradient):
        return gradient


class SummedOfParts(Summed):
    """The sum over the ranks, which every rank uses for its own part."""

    @staticmethod
    def backward(context, gradient):
        return total(gradient)


class Gathered(torch.autograd.Function):
    """The parts of the last dimension of all ranks."""

    @staticmethod
    def forward(context, x, sizes):
        context.sizes = sizes
        parts = [x.new_empty((*x.shape[:-1], size)) for size in sizes]
        width = max(sizes)
        padded = [x.new_zeros((*x.shape[:-1], width)) for _ in sizes]
        distributed.all_gather(padded, nn.functional.pad(x, (0, width - x.shape[-1])))
        return torch.cat([each[..., : part.shape[-1]] for each, part in zip(padded, parts)], -1)

    @staticmethod
    def backward(context, gradient):
        return gradient.split(context.sizes, -1)[distributed.get_rank()].contiguous(), None


def total(x):
    x = x.clone()
    distributed.all_reduce(x)
    return x


class Embedding(nn.Embedding):
    start = None  # the first token of this rank; None: it has all

    def forward(self, tokens):
        if self.start is None:
            return super().forward(tokens)
        weight = self.weight.to_local()
        own = tokens - self.start
        elsewhere = (own < 0) | (own >= len(weight))
        found = embedding(own.clamp(0, len(weight) - 1), weight)
        found = found.masked_fill(elsewhere[..., None], 0.0)
        return Summed.apply(found)


class Norm(nn.Module):
    """RMSNorm. divided: whether every rank has a part of the values."""

    divided = False

    def __init__(self, size):
        super().__init__()
        self.size, self.weight = size, nn.Parameter(torch.ones(size))

    def forward(self, x):
        squares = x.square().sum(-1, keepdim=True)
        if self.divided:
            squares = SummedOfParts.apply(squares)
        return x * (squares / self.size + 1e-5).rsqrt() * local(self.weight)


class Columns(nn.Linear):
    """A linear layer of which every rank has a part of the outputs. sizes: of all ranks, where outputs are gathered."""

    divided, sizes = False, ()

    def forward(self, x):
        if not self.divided:
            return super().forward(x)
        y = linear(Copied.apply(x), local(self.weight), local(self.bias))
        return Gathered.apply(y, self.sizes) if self.sizes else y


class Rows(nn.Linear):
    """A linear layer of which every rank has a part of the inputs."""

    divided = False

    def forward(self, x):
        if not self.divided:
            return super().forward(x)
        y = linear(x, local(self.weight))
        return Summed.apply(y) + self.bias


def local(parameter):
    return parameter.to_local() if hasattr(parameter, "to_local") else parameter


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.tok = Embedding(VOCABULARY, DIM)
        self.fc1 = Columns(DIM, HIDDEN)
        self.norm = Norm(HIDDEN)
        self.fc2 = Rows(HIDDEN, DIM)
        self.ln = nn.LayerNorm(DIM)
        self.head = Columns(DIM, VOCABULARY)

    def forward(self, tokens):
        x = self.tok(tokens)
        y = self.fc2(self.norm(gelu(self.fc1(x))))
        return self.head(self.ln(x + y))


build = Net


def parallelize(model, mesh):
    rank, count = mesh.get_local_rank(), mesh.size()
    most = -(-VOCABULARY // count)
    sizes = [min(most, VOCABULARY - most * each) for each in range(count)]
    dims = {
        "tok.weight": 0,
        "fc1.weight": 0,
        "fc1.bias": 0,
        "norm.weight": 0,
        "fc2.weight": 1,
        "head.weight": 0,
        "head.bias": 0,
    }
    for name, dim in dims.items():
        layer, _, own = name.partition(".")
        module = getattr(model, layer)
        whole = getattr(module, own).detach()
        setattr(module, own, nn.Parameter(distribute_tensor(whole, mesh, [Shard(dim)])))
        module.divided = True
    model.tok.start = most * rank
    model.head.sizes = sizes
    return model
