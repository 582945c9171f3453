from diffusers.models.embeddings import TimestepEmbedding, Timesteps
from diffusers.models.resnet import ResnetBlock2D
from diffusers.models.transformers.transformer_2d import Transformer2DModel
from torch import nn


class Block(nn.Module):
    def __init__(self, inputs, width, heads, text, groups):
        super().__init__()
        self.time_proj = Timesteps(inputs, flip_sin_to_cos=True, downscale_freq_shift=0)
        self.time_embedding = TimestepEmbedding(inputs, 4 * inputs)
        self.resnet = ResnetBlock2D(
            in_channels=inputs, out_channels=width, temb_channels=4 * inputs, groups=groups, eps=1e-5
        )
        self.attention = Transformer2DModel(
            heads, width // heads, in_channels=width, norm_num_groups=groups, cross_attention_dim=text
        )

    def forward(self, sample, timestep, text):
        time = self.time_embedding(self.time_proj(timestep).to(sample.dtype))
        x = self.resnet(sample, time)
        return self.attention(x, encoder_hidden_states=text).sample


def build(inputs=8, width=12, heads=2, text=10, groups=4):
    return Block(inputs, width, heads, text, groups)
