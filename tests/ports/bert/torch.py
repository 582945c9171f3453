from transformers import BertConfig, BertModel

SIZES = {"vocab_size": 53, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}


def build():
    return BertModel(BertConfig(**SIZES, max_position_embeddings=20))
