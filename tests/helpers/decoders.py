"""Decoders for tests: a small Llama of one file, one of transformers, and faults that only some ways to compute show."""

import json

SPEC = """
from xverify import ModelSpec, TensorSpec

SPEC = ModelSpec(
    inputs={"tokens": TensorSpec(("N", 16), "int64", low=0, high=64)},
    outputs={"logits": TensorSpec(("N", 16, 64))},
    task="language-model",
    batch=2,
)
"""

LLAMA = """
import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, KEYS, WORDS = 48, 4, 2, 64
SIZE = WIDTH // HEADS


def rotated(x, positions):
    rates = 100.0 ** -(torch.arange(0, SIZE, 2, dtype=x.dtype) / SIZE)
    angles = positions[:, None, :, None].to(x.dtype) * rates
    a, b = x.chunk(2, -1)
    return torch.cat([a * angles.cos() - b * angles.sin(), b * angles.cos() + a * angles.sin()], -1)


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.RMSNorm(WIDTH, eps=1e-5), nn.RMSNorm(WIDTH, eps=1e-5)
        self.q = nn.Linear(WIDTH, WIDTH, bias=False)
        self.kv = nn.Linear(WIDTH, 2 * KEYS * SIZE, bias=False)
        self.o = nn.Linear(WIDTH, WIDTH, bias=False)
        self.up, self.down = nn.Linear(WIDTH, 96, bias=False), nn.Linear(96, WIDTH, bias=False)

    def forward(self, x, past, allowed, positions):
        n, t, _ = x.shape
        h = self.norm1(x)
        q = rotated(self.q(h).view(n, t, HEADS, SIZE).transpose(1, 2), positions)
        k, v = self.kv(h).view(n, t, 2, KEYS, SIZE).permute(2, 0, 3, 1, 4)
        k = rotated(k, positions)
        if past is not None:
            k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)
        kept = (k, v)
        k, v = k.repeat_interleave(HEADS // KEYS, 1), v.repeat_interleave(HEADS // KEYS, 1)
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        x = x + self.o(y.transpose(1, 2).reshape(n, t, WIDTH))
        return x + self.down(F.silu(self.up(self.norm2(x)))), kept


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.RMSNorm(WIDTH, eps=1e-5)
        self.head = nn.Linear(WIDTH, WORDS, bias=False)

    def forward(self, tokens, cache=None, use_cache=False, mask=None, positions=None):
        n, t = tokens.shape
        past = cache[0][0].shape[2] if cache else 0
        if positions is None:
            positions = torch.arange(past, past + t).expand(n, t)
        allowed = torch.ones(t, past + t, dtype=torch.bool).tril(past)[None, None]
        if mask is not None:
            allowed = allowed & mask.bool()[:, None, None]
            allowed = allowed | torch.eye(past + t, dtype=torch.bool)[past:]
        x, kept = self.embedding(tokens), []
        for index, block in enumerate(self.blocks):
            x, pair = block(x, cache[index] if cache else None, allowed, positions)
            kept.append(pair)
        logits = self.head(self.norm(x))
        return (logits, tuple(kept)) if use_cache else logits


def build():
    return Llama()
"""

# Name -> (lines of the Llama, what stands there with the fault, the first way that shows it, the place of the difference).
FAULTS = {
    "positions from 0 at every step": (
        "torch.arange(past, past + t)", "torch.arange(t)", "steps", "between `blocks.0.kv` and `blocks.0.o`",
    ),
    "past length off by one": (
        "torch.arange(past, past + t)", "(torch.arange(past, past + t) + (past > 4))", "steps", "`blocks.0.o`",
    ),
    "cached keys are not rotated": (
        "kept = (k, v)", "kept = (plain if past is None else torch.cat([past[0], plain], 2), v)",
        "steps", "between `blocks.0.kv` and `blocks.0.o`",
    ),
    "a window that is one too short at steps": (
        ".tril(past)", ".tril(past).triu(int(past > 0))", "steps", "`blocks.0.o`",
    ),
    "the cache of another sequence": (
        "torch.cat([past[0], k], 2)", "torch.cat([past[0].roll(1, 0), k], 2)", "steps", "`blocks.0.o`",
    ),
    "a cache in float16": (
        "kept = (k, v)", "kept = (k.half(), v.half())", "steps", "`blocks.0.o`",
    ),
    "a stale cache": (
        "kept = (k, v)", "kept = (k, v) if past is None or t > 1 else past", "steps", "`blocks.0.o`",
    ),
    "chunks that see later tokens": (
        ".tril(past)", ".tril(past + (t if past else 0))", "chunks of 5, 3, 1", "`blocks.0.o`",
    ),
    "a cache that the module keeps": (
        "cache[index] if cache else None", "self.held[index] if cache else None", "sequences reordered", "`blocks.0.o`",
    ),
    "a mask without padding": (
        "            allowed = allowed & mask.bool()[:, None, None]\n", "", "padded left", "`blocks.0.o`",
    ),
    "the last token of padding is seen": (
        "mask.bool()[:, None, None]", "(mask.bool() | mask.bool().roll(-1, 1))[:, None, None]", "padded left", "`blocks.0.o`",
    ),
}  # fmt: skip

TRANSFORMERS_SPEC = SPEC.replace("tokens", "input_ids", 1)
TRANSFORMERS = """
import torch
from transformers import LlamaConfig, LlamaForCausalLM


class Model(LlamaForCausalLM):
    def forward(self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, use_cache=False):
        past = past_key_values.get_seq_length() if past_key_values is not None else 0
        #
        return super().forward(
            input_ids, attention_mask=attention_mask, position_ids=position_ids, past_key_values=past_key_values,
            use_cache=use_cache,
        )


def build():
    return Model(
        LlamaConfig(
            vocab_size=64, hidden_size=48, intermediate_size=64, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, max_position_embeddings=64, use_cache=False,
        )
    )
"""
# The same of the model of transformers, with the lines that stand at the comment.
IN_TRANSFORMERS = {
    "positions from 0 at every step": (
        "position_ids = torch.arange(input_ids.shape[1])[None] if past else position_ids",
        "steps", "v_proj` and `model.layers.0.self_attn.o_proj`",
    ),
    "no mask of padding": (
        "attention_mask = torch.ones_like(attention_mask) if attention_mask is not None else None",
        "padded left", "v_proj` and `model.layers.0.self_attn.o_proj`",
    ),
    "the cache of another sequence": (
        "[layer.keys.copy_(layer.keys.roll(1, 0)) for layer in past_key_values.layers] if past else None",
        "steps", "v_proj` and `model.layers.0.self_attn.o_proj`",
    ),
}  # fmt: skip


def folder(path, code=LLAMA, spec=SPEC):
    """Write a model folder with this torch.py, and return it."""
    path.mkdir(parents=True, exist_ok=True)
    (path / "spec.py").write_text(spec)
    (path / "torch.py").write_text(code)
    return path


def faulty(name):
    """The Llama of one file with a fault."""
    right, wrong, *_ = FAULTS[name]
    assert LLAMA.count(right) == 1
    code = LLAMA.replace(right, wrong)
    if "self.held" in wrong:
        code = code.replace("kept.append(pair)", "kept.append(pair)\n            self.held[index] = pair")
        code = code.replace("self.embedding =", "self.held = {}\n        self.embedding =")
    if "plain" in wrong:
        code = code.replace("k = rotated(k, positions)", "plain, k = k, rotated(k, positions)")
    if "half" in wrong:
        code = code.replace("past[0], k", "past[0].to(k.dtype), k").replace("past[1], v", "past[1].to(v.dtype), v")
    return code


def decode(xverify, folder, *options):
    """(how ``xverify run --task decode`` ended, the row of the result)."""
    file = folder / "result.json"
    ended = xverify("run", str(folder), "--task", "decode", "--subjects", "torch:eager", "--json", str(file), *options)
    return ended, json.loads(file.read_text())["rows"][0] if file.is_file() else None


def checks(row):
    """Name of a way -> its check."""
    return {check["name"]: check for check in row["decoding"]["ways"]}
