from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperEncoder

SIZES = {"num_mel_bins": 10, "d_model": 24, "encoder_layers": 2, "encoder_attention_heads": 3, "encoder_ffn_dim": 40}


def build():
    return WhisperEncoder(WhisperConfig(**SIZES, max_source_positions=13))
