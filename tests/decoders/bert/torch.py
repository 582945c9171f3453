from transformers import BertConfig, BertForMaskedLM

SIZES = {"vocab_size": 64, "hidden_size": 48, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}


def build():
    return BertForMaskedLM(BertConfig(**SIZES, max_position_embeddings=32))
