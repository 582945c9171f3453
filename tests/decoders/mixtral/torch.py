from transformers import MixtralConfig, MixtralForCausalLM

SIZES = {"vocab_size": 64, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}


def build():
    return MixtralForCausalLM(MixtralConfig(**SIZES, **HEADS, **EXPERTS, use_cache=False))
