"""The names that files of language models have for the same weights, by a table.

``*`` stands for the number of a layer and ``#`` for that of an expert. A weight in several places of a row has several names.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

HUGGING_FACE, GGUF, META, MEGATRON = "Hugging Face", "GGUF", "Meta", "Megatron"

# Kind -> module in Hugging Face's files | in GGUF | in Meta's | in Megatron's; the weight or the bias of it follows.
TABLE: dict[str, tuple[str, str, str, str]] = {
    "embedding": ("embed_tokens", "token_embd", "tok_embeddings", "embedding.word_embeddings"),
    "output": ("lm_head", "output", "output", "output_layer"),
    "last norm": ("norm", "output_norm", "norm", "decoder.final_layernorm"),
    "attention norm": (
        "layers.*.input_layernorm",
        "blk.*.attn_norm",
        "layers.*.attention_norm",
        "decoder.layers.*.input_layernorm",
    ),
    "q": ("layers.*.self_attn.q_proj", "blk.*.attn_q", "layers.*.attention.wq", ""),
    "k": ("layers.*.self_attn.k_proj", "blk.*.attn_k", "layers.*.attention.wk", ""),
    "v": ("layers.*.self_attn.v_proj", "blk.*.attn_v", "layers.*.attention.wv", ""),
    "qkv": (
        "layers.*.self_attn.qkv_proj",
        "blk.*.attn_qkv",
        "layers.*.attention.wqkv",
        "decoder.layers.*.self_attention.linear_qkv",
    ),
    "q norm": ("layers.*.self_attn.q_norm", "blk.*.attn_q_norm", "", "decoder.layers.*.self_attention.q_layernorm"),
    "k norm": ("layers.*.self_attn.k_norm", "blk.*.attn_k_norm", "", "decoder.layers.*.self_attention.k_layernorm"),
    "attention output": (
        "layers.*.self_attn.o_proj",
        "blk.*.attn_output",
        "layers.*.attention.wo",
        "decoder.layers.*.self_attention.linear_proj",
    ),
    # The names in Hugging Face's files of Gemma are in FOUR_NORMS.
    "norm behind attention": ("", "blk.*.post_attention_norm", "", ""),
    "norm of feed-forward": (
        "layers.*.post_attention_layernorm",
        "blk.*.ffn_norm",
        "layers.*.ffn_norm",
        "decoder.layers.*.pre_mlp_layernorm",
    ),
    "norm behind feed-forward": ("layers.*.post_feedforward_layernorm", "blk.*.post_ffw_norm", "", ""),
    "gate": ("layers.*.mlp.gate_proj", "blk.*.ffn_gate", "layers.*.feed_forward.w1", ""),
    "up": ("layers.*.mlp.up_proj", "blk.*.ffn_up", "layers.*.feed_forward.w3", ""),
    "gate and up": ("layers.*.mlp.gate_up_proj", "", "", "decoder.layers.*.mlp.linear_fc1"),
    "down": ("layers.*.mlp.down_proj", "blk.*.ffn_down", "layers.*.feed_forward.w2", "decoder.layers.*.mlp.linear_fc2"),
    "router": (
        "layers.*.mlp.gate",
        "blk.*.ffn_gate_inp",
        "layers.*.feed_forward.gate",
        "decoder.layers.*.mlp.router",
    ),
    "gate of expert": ("layers.*.mlp.experts.#.gate_proj", "", "layers.*.feed_forward.experts.#.w1", ""),
    "up of expert": ("layers.*.mlp.experts.#.up_proj", "", "layers.*.feed_forward.experts.#.w3", ""),
    "down of expert": ("layers.*.mlp.experts.#.down_proj", "", "layers.*.feed_forward.experts.#.w2", ""),
    "gates of experts": ("layers.*.mlp.experts.gate_proj", "blk.*.ffn_gate_exps", "", ""),
    "ups of experts": ("layers.*.mlp.experts.up_proj", "blk.*.ffn_up_exps", "", ""),
    "gates and ups of experts": ("layers.*.mlp.experts.gate_up_proj", "blk.*.ffn_gate_up_exps", "", ""),
    "downs of experts": ("layers.*.mlp.experts.down_proj", "blk.*.ffn_down_exps", "", ""),
    "gate of shared expert": ("layers.*.mlp.shared_expert.gate_proj", "blk.*.ffn_gate_shexp", "", ""),
    "up of shared expert": ("layers.*.mlp.shared_expert.up_proj", "blk.*.ffn_up_shexp", "", ""),
    "down of shared expert": ("layers.*.mlp.shared_expert.down_proj", "blk.*.ffn_down_shexp", "", ""),
    "router of shared expert": ("layers.*.mlp.shared_expert_gate", "blk.*.ffn_gate_inp_shexp", "", ""),
}
# Other names in Hugging Face's files.
MIXTRAL = "layers.*.block_sparse_moe"
ALSO = {
    "layers.*.mlp.router": "router",
    f"{MIXTRAL}.gate": "router",
    f"{MIXTRAL}.experts.#.w1": "gate of expert",
    f"{MIXTRAL}.experts.#.w3": "up of expert",
    f"{MIXTRAL}.experts.#.w2": "down of expert",
    "layers.*.mlp.shared_experts.gate_proj": "gate of shared expert",
    "layers.*.mlp.shared_experts.up_proj": "up of shared expert",
    "layers.*.mlp.shared_experts.down_proj": "down of shared expert",
    "decoder.layers.*.self_attention.linear_qkv.layer_norm": "attention norm",
    "decoder.layers.*.mlp.linear_fc1.layer_norm": "norm of feed-forward",
}
# With a norm before the feed-forward layer, the name of the norm of Llama means the one behind attention (Gemma 2 and 3).
FOUR_NORMS = "layers.*.pre_feedforward_layernorm"
PREFIXES = re.compile(r"^(?:module\.|model\.|language_model\.|text_model\.|transformer\.)+(?!$)")
SUFFIX = re.compile(
    r"(?:[._](weight|bias)|\.(kernel|embedding|scale))$"
)  # the three last ones are Flax's names of a weight
NORMS = tuple(kind for kind in TABLE if "norm" in kind)


@dataclass(frozen=True)
class Key:
    """What a weight is. kind: of TABLE, or its name where the table lacks it. layer, expert: -1 where it has none."""

    kind: str
    layer: int = -1
    expert: int = -1
    suffix: str = "weight"

    def says(self) -> str:
        """What the weight is, in words."""
        return self.kind + (f" {self.expert}" if self.expert >= 0 else "")

    def of(self, kind: str, expert: int | None = None) -> Key:
        """The same place with another kind of weight."""
        return replace(self, kind=kind, expert=self.expert if expert is None else expert)


@dataclass(frozen=True)
class Named:
    """keys: name -> what the weight is. style: the column of the table with most of the names."""

    keys: Mapping[str, Key]
    style: str


def _pattern(module: str) -> re.Pattern[str]:
    text = re.escape(module).replace(r"\*", r"(?P<layer>\d+)").replace(r"\#", "#").replace("#", r"(?P<expert>\d+)")
    return re.compile(text)


PATTERNS = [
    (_pattern(module), kind, style)
    for kind, row in TABLE.items()
    for module, style in zip(row, (HUGGING_FACE, GGUF, META, MEGATRON))
    if module
] + [(_pattern(module), kind, MEGATRON if module[0] == "d" else HUGGING_FACE) for module, kind in ALSO.items()]
FIRST_NORM = _pattern(FOUR_NORMS)


def named(names: Iterable[str]) -> Named:
    """What the weights with these names are."""
    names = list(names)
    modules = {name: SUFFIX.sub("", PREFIXES.sub("", name)) for name in names}
    four = any(FIRST_NORM.fullmatch(module) for module in modules.values())
    keys, counts = dict[str, Key](), dict[str, int]()
    for name, module in modules.items():
        suffix = SUFFIX.search(name)
        key, styles = _key(module, "bias" if suffix and suffix[1] == "bias" else "weight", four)
        keys[name] = key or Key(name)
        for style in styles:
            counts[style] = counts.get(style, 0) + 1
    return Named(keys, max(counts, key=lambda style: counts[style]) if counts else "")


def _key(module: str, suffix: str, four: bool) -> tuple[Key | None, list[str]]:
    """(what a weight is, the columns that have its name). four: whether the layers have four norms."""
    match = FIRST_NORM.fullmatch(module)
    if match:
        return Key("norm of feed-forward", int(match["layer"]), -1, suffix), [HUGGING_FACE]
    found, styles = None, []
    for pattern, kind, style in PATTERNS:
        match = pattern.fullmatch(module)
        if match is None:
            continue
        if four and module.endswith("post_attention_layernorm"):
            kind = "norm behind attention"
        numbers = match.groupdict()
        found = found or Key(kind, int(numbers.get("layer", -1)), int(numbers.get("expert", -1)), suffix)
        styles.append(style)
    return found, styles


def is_language_model(names: Iterable[str]) -> bool:
    """Whether these are the names of a language model's weights: it has an embedding and attention."""
    kinds = {key.kind for key in named(names).keys.values()}
    return "embedding" in kinds and bool(kinds & {"q", "qkv"})
