import torch
from transformers import GPT2Config, GPT2LMHeadModel


class Twins(GPT2LMHeadModel):
    def forward(self, input_ids, attention_mask=None, position_ids=None, past_key_values=None, use_cache=False):
        returned = super().forward(
            input_ids % 64,
            attention_mask=attention_mask,
            position_ids=position_ids,
            past_key_values=past_key_values,
            use_cache=use_cache,
            return_dict=True,
        )
        logits = torch.cat([returned.logits, returned.logits * 3 / 3], -1)
        return (logits, returned.past_key_values) if use_cache else logits


def build():
    return Twins(GPT2Config(vocab_size=64, n_positions=32, n_embd=48, n_layer=2, n_head=4, use_cache=False))
