import torch
from torch import nn

from xverify.models.torch_layers import Block, Position


class CausalSoftmax(nn.Module):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def forward(self, scores):
        place = torch.arange(scores.shape[-1], device=scores.device)
        future = place > place[:, None]
        return scores.masked_fill(future, float("-inf")).softmax(-1)


class Head(nn.Module):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def forward(self, x, weight):
        return x @ weight.T


class GPT(nn.Module):
    def __init__(self, vocabulary, dim, depth, heads, length):
        super().__init__()
        self.tok = nn.Embedding(vocabulary, dim)
        self.pos = Position(length, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, CausalSoftmax(), 1e-5) for _ in range(depth))
        self.ln = nn.LayerNorm(dim, eps=1e-5)
        self.head = Head()

    def forward(self, tokens):
        x = self.pos(self.tok(tokens))
        for block in self.blocks:
            x = block(x)
        return self.head(self.ln(x), self.tok.weight)


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    return GPT(vocabulary, dim, depth, heads, length)


def parallelize(model, mesh):
    """Tensor parallel: each rank has a part of every linear layer of the blocks."""
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

    gathered = ColwiseParallel(output_layouts=Replicate())
    plan = {f"attn.{name}": gathered for name in ("q", "k", "v", "proj")}
    for block in model.blocks:
        parallelize_module(block, mesh, {**plan, "fc1": ColwiseParallel(), "fc2": RowwiseParallel()})
    return model
