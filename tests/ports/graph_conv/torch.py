import torch
import torch.nn.functional as F
from torch import nn


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(inputs, outputs))
        self.bias = nn.Parameter(torch.zeros(outputs))
        nn.init.xavier_uniform_(self.weight)

    def forward(self, x, edges):
        return edges @ (x @ self.weight) + self.bias


def normalised(edges):
    """D^-1/2 (A + I) D^-1/2"""
    edges = edges + torch.eye(edges.shape[-1])
    scale = edges.sum(-1).pow(-0.5)
    return scale.unsqueeze(-1) * edges * scale.unsqueeze(-2)


class GCN(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = GraphConv(10, 16)
        self.conv2 = GraphConv(16, 12)
        self.node_head = nn.Linear(12, 5)
        self.graph_head = nn.Linear(24, 3)

    def forward(self, nodes, edges):
        edges = normalised(edges)
        x = F.relu(self.conv1(nodes, edges))
        x = F.elu(self.conv2(x, edges))
        graph = torch.cat([x.mean(1), x.amax(1)], -1)
        return F.log_softmax(self.node_head(x), -1), self.graph_head(graph)


def build():
    return GCN()
