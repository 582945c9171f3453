from jittor import nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.scale = (dim // heads) ** -0.5
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def execute(self, x, bias):
        B, T, C = x.shape
        qkv = self.qkv(x).reshape(B, T, 3, self.heads, C // self.heads)
        qkv = qkv.permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        attn = nn.matmul(q, k.transpose(2, 3)) * self.scale + bias
        attn = nn.softmax(attn, dim=-1)
        x = nn.matmul(attn, v).transpose(1, 2).reshape(B, T, C)
        return self.proj(x)


class Encoder(nn.Module):
    def __init__(self, dim, heads, classes):
        super().__init__()
        self.norm1 = nn.LayerNorm(dim)
        self.attn = Attention(dim, heads)
        self.norm2 = nn.LayerNorm(dim)
        self.fc1 = nn.Linear(dim, 2 * dim)
        self.fc2 = nn.Linear(2 * dim, dim)
        self.head = nn.Linear(dim, classes)

    def execute(self, x, mask):
        mask = mask.float32()
        bias = (1 - mask).unsqueeze(1).unsqueeze(1) * -1e9
        x = x + self.attn(self.norm1(x), bias)
        x = x + self.fc2(nn.relu(self.fc1(self.norm2(x))))
        pooled = (x * mask.unsqueeze(-1)).sum(1) / mask.sum(1).unsqueeze(-1)
        return self.head(pooled), x


def build(dim=24, heads=3, classes=5):
    return Encoder(dim, heads, classes)
