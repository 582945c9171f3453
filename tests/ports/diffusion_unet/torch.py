from diffusers import UNet2DModel

BLOCKS = {"down_block_types": ["DownBlock2D"] * 2, "up_block_types": ["UpBlock2D"] * 2, "block_out_channels": (8, 12)}


def build():
    return UNet2DModel((10, 14), **BLOCKS, layers_per_block=1, norm_num_groups=4, attention_head_dim=6)
