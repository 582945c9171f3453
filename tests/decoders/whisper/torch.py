from transformers import WhisperConfig
from transformers.models.whisper.modeling_whisper import WhisperDecoder

SIZES = {"vocab_size": 64, "d_model": 48, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 64}
TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


class Decoder(WhisperDecoder):
    def forward(
        self,
        input_ids,
        encoder_hidden_states,
        attention_mask=None,
        position_ids=None,
        past_key_values=None,
        use_cache=False,
    ):
        returned = super().forward(
            input_ids,
            encoder_hidden_states=encoder_hidden_states,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            use_cache=use_cache,
        )
        logits = returned.last_hidden_state @ self.embed_tokens.weight.T
        return (logits, returned.past_key_values) if use_cache else logits


def build():
    return Decoder(WhisperConfig(**SIZES, **TOKENS, max_target_positions=32, dropout=0.0, use_cache=False))
