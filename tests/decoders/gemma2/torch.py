from transformers import Gemma2Config, Gemma2ForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
CAPS = {"attn_logit_softcapping": 5.0, "final_logit_softcapping": 3.0}
# The other implementations of attention leave out the cap of its scores.
ATTENTION = {"attn_implementation": "eager"}


def build():
    return Gemma2ForCausalLM(
        Gemma2Config(
            **SIZES,
            **HEADS,
            **CAPS,
            **ATTENTION,
            head_dim=12,
            query_pre_attn_scalar=12,
            sliding_window=6,
            use_cache=False,
        )
    )
