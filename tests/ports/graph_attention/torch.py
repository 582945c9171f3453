import torch
import torch.nn.functional as F
from torch import nn


def edge_softmax(scores, target, nodes):
    index = target[:, None].expand_as(scores)
    largest = torch.full((nodes, scores.shape[1]), -torch.inf, dtype=scores.dtype)
    largest = largest.scatter_reduce(0, index, scores, "amax")
    e = torch.exp(scores - largest[target])
    total = torch.zeros(nodes, scores.shape[1], dtype=scores.dtype).index_add(0, target, e)
    return e / (total[target] + 1e-16)


class GATConv(nn.Module):
    def __init__(self, inputs, outputs, heads, concat=True):
        super().__init__()
        self.heads, self.concat = heads, concat
        self.lin = nn.Linear(inputs, heads * outputs, bias=False)
        self.att_src = nn.Parameter(torch.randn(heads, outputs))
        self.att_dst = nn.Parameter(torch.randn(heads, outputs))
        self.bias = nn.Parameter(torch.zeros(heads * outputs if concat else outputs))

    def forward(self, x, edges):
        source, target = edges
        x = self.lin(x).unflatten(-1, (self.heads, -1))
        alpha_src = (x * self.att_src).sum(-1)
        alpha_dst = (x * self.att_dst).sum(-1)
        alpha = F.leaky_relu(alpha_src[source] + alpha_dst[target], 0.2)
        alpha = edge_softmax(alpha, target, x.shape[0])
        out = torch.zeros_like(x).index_add(0, target, x[source] * alpha[..., None])
        out = out.flatten(1) if self.concat else out.mean(1)
        return out + self.bias


class GAT(nn.Module):
    def __init__(self, inputs=8, hidden=6, classes=5, heads=3):
        super().__init__()
        self.conv1 = GATConv(inputs, hidden, heads)
        self.conv2 = GATConv(heads * hidden, classes, heads, concat=False)

    def forward(self, nodes, edges):
        loops = torch.arange(nodes.shape[0]).expand(2, -1)
        edges = torch.cat([edges, loops], dim=1)
        x = F.elu(self.conv1(nodes, edges))
        return F.log_softmax(self.conv2(x, edges), dim=-1)


def build():
    return GAT()
