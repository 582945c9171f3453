from transformers import LlamaConfig, LlamaForCausalLM

SIZES = {"vocab_size": 53, "hidden_size": 24, "intermediate_size": 40, "num_hidden_layers": 2}


def build():
    return LlamaForCausalLM(LlamaConfig(**SIZES, num_attention_heads=6, num_key_value_heads=2, use_cache=False))
