from transformers import GPT2Config, GPT2LMHeadModel


def build():
    return GPT2LMHeadModel(GPT2Config(vocab_size=64, n_positions=32, n_embd=48, n_layer=2, n_head=4, use_cache=False))
