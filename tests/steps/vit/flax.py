import jax
import optax
from flax import nnx
from jax import numpy as jnp


class Block(nnx.Module):
    def __init__(self, width, heads, rngs):
        self.norm1 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.qkv = nnx.Linear(width, 3 * width, rngs=rngs)
        self.proj = nnx.Linear(width, width, rngs=rngs)
        self.norm2 = nnx.LayerNorm(width, epsilon=1e-5, rngs=rngs)
        self.fc1 = nnx.Linear(width, 2 * width, rngs=rngs)
        self.fc2 = nnx.Linear(2 * width, width, rngs=rngs)
        self.heads = heads

    def __call__(self, x):
        q, k, v = jnp.split(self.qkv(self.norm1(x)), 3, axis=-1)
        q, k, v = (part.reshape(*part.shape[:2], self.heads, -1) for part in (q, k, v))
        x = x + self.proj(nnx.dot_product_attention(q, k, v).reshape(x.shape))
        return x + self.fc2(nnx.gelu(self.fc1(self.norm2(x)), approximate=False))


class ViT(nnx.Module):
    def __init__(self):
        rngs = nnx.Rngs(0)
        self.patch_embed = nnx.Conv(3, 16, (4, 4), strides=(4, 4), padding="VALID", rngs=rngs)
        self.cls_token = nnx.Param(jnp.zeros((1, 1, 16)))
        self.pos_embed = nnx.Param(jnp.zeros((1, 5, 16)))
        self.block = Block(16, 2, rngs)
        self.norm = nnx.LayerNorm(16, epsilon=1e-5, rngs=rngs)
        self.head = nnx.Linear(16, 5, rngs=rngs)

    def __call__(self, image):
        x = self.patch_embed(image)
        x = x.reshape(x.shape[0], -1, x.shape[-1])
        token = jnp.broadcast_to(self.cls_token[...], (x.shape[0], 1, 16))
        x = jnp.concatenate([token, x], axis=1) + self.pos_embed[...]
        return self.head(self.norm(self.block(x))[:, 0])


build = ViT


def is_decayed(path, leaf):
    return leaf.ndim > 1 and path[0].key not in ("cls_token", "pos_embed")


def mask(params):
    return jax.tree_util.tree_map_with_path(is_decayed, params)


def train_state(model):
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(3e-3, weight_decay=0.3, mask=mask))
    return nnx.Optimizer(model, optimizer, wrt=nnx.Param)


def train_step(model, optimizer, batch):
    image, lam = batch["image"], batch["lam"]
    share = lam[:, None, None, None]
    mixed = share * image + (1 - share) * image[::-1]
    one_hot = optax.smooth_labels(jax.nn.one_hot(batch["label"], 5), 0.1)
    target = lam[:, None] * one_hot + (1 - lam[:, None]) * one_hot[::-1]

    def loss_of(model):
        return optax.softmax_cross_entropy(model(mixed), target).mean()

    loss, gradients = nnx.value_and_grad(loss_of)(model)
    optimizer.update(model, gradients)
    return {"loss": loss}
