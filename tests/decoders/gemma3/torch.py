from transformers import Gemma3ForCausalLM, Gemma3TextConfig

SIZES = {"vocab_size": 64, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 3}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
KINDS = ["sliding_attention", "sliding_attention", "full_attention"]


def build():
    return Gemma3ForCausalLM(
        Gemma3TextConfig(
            **SIZES,
            **HEADS,
            head_dim=12,
            query_pre_attn_scalar=12,
            sliding_window=6,
            layer_types=KINDS,
            use_cache=False,
        )
    )
