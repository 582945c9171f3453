import jittor as jt
from jittor import init, nn


class GraphConv(nn.Module):
    def __init__(self, inputs, outputs):
        self.weight = init.xavier_uniform((inputs, outputs), "float32")
        self.bias = init.constant((outputs,), "float32", 0.0)

    def execute(self, x, edges):
        x = jt.matmul(x, self.weight)
        return jt.matmul(edges, x) + self.bias


def normalised(edges):
    n = edges.shape[-1]
    edges = edges + init.eye(n).unsqueeze(0)
    degree = edges.sum(-1)
    scale = 1 / jt.sqrt(degree)
    return edges * scale.unsqueeze(2) * scale.unsqueeze(1)


class GCN(nn.Module):
    def __init__(self):
        self.conv1 = GraphConv(10, 16)
        self.conv2 = GraphConv(16, 12)
        self.node_head = nn.Linear(12, 5)
        self.graph_head = nn.Linear(24, 3)

    def execute(self, nodes, edges):
        edges = normalised(edges)
        x = nn.relu(self.conv1(nodes, edges))
        x = nn.elu(self.conv2(x, edges))
        graph = jt.concat([x.mean(1), x.max(1)], dim=1)
        return nn.log_softmax(self.node_head(x), dim=-1), self.graph_head(graph)


def build():
    return GCN()
