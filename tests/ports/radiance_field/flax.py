import jax.numpy as jnp
from flax import nnx


def posenc(x, degree):
    bands = jnp.pi * 2.0 ** jnp.arange(degree)
    angles = x[..., :, None] * bands
    waves = jnp.concatenate([jnp.sin(angles), jnp.cos(angles)], axis=-1)
    return jnp.concatenate([x, waves.reshape(*x.shape[:-1], -1)], axis=-1)


class Field(nnx.Module):
    def __init__(self, rngs, width=24, depth=4, skip=2, deg_point=4, deg_view=2):
        self.deg_point, self.deg_view, self.skip = deg_point, deg_view, skip
        n_point, n_view = 3 + 6 * deg_point, 3 + 6 * deg_view
        sizes = [n_point] + [width] * (depth - 1)
        sizes[skip] += n_point
        self.trunk = nnx.List([nnx.Linear(size, width, rngs=rngs) for size in sizes])
        self.density = nnx.Linear(width, 1, rngs=rngs)
        self.feature = nnx.Linear(width, width, rngs=rngs)
        self.view = nnx.Linear(width + n_view, width // 2, rngs=rngs)
        self.rgb = nnx.Linear(width // 2, 3, rngs=rngs)

    def __call__(self, points, viewdirs):
        inputs = posenc(points, self.deg_point)
        x = inputs
        for i, layer in enumerate(self.trunk):
            if i == self.skip:
                x = jnp.concatenate([inputs, x], axis=-1)
            x = nnx.relu(layer(x))
        sigma = nnx.softplus(self.density(x)[..., 0] - 1.0)
        x = jnp.concatenate([self.feature(x), posenc(viewdirs, self.deg_view)], axis=-1)
        x = nnx.relu(self.view(x))
        return sigma, nnx.sigmoid(self.rgb(x))


def volumetric_rendering(rgb, sigma, t_vals, dirs):
    last = jnp.full((1,), 1e2)
    dists = jnp.concatenate([jnp.diff(t_vals), last])
    dists = dists * jnp.linalg.norm(dirs, axis=-1, keepdims=True)
    alpha = 1.0 - jnp.exp(-sigma * dists)
    trans = jnp.cumprod(1.0 - alpha[..., :-1] + 1e-10, axis=-1)
    trans = jnp.concatenate([jnp.ones_like(alpha[..., :1]), trans], axis=-1)
    weights = alpha * trans
    acc = weights.sum(axis=-1)
    comp_rgb = (weights[..., None] * rgb).sum(axis=-2)
    comp_rgb = comp_rgb + (1.0 - acc[..., None])
    return comp_rgb, (weights * t_vals).sum(axis=-1), acc


class NeRF(nnx.Module):
    def __init__(self, rngs, near=0.5, far=3.0, num_samples=9):
        self.near, self.far, self.num_samples = near, far, num_samples
        self.field = Field(rngs)

    def __call__(self, origins, directions):
        t_vals = jnp.linspace(self.near, self.far, self.num_samples)
        points = origins[:, None, :] + t_vals[None, :, None] * directions[:, None, :]
        viewdirs = directions / jnp.linalg.norm(directions, axis=-1, keepdims=True)
        viewdirs = jnp.broadcast_to(viewdirs[:, None, :], points.shape)
        sigma, rgb = self.field(points, viewdirs)
        return volumetric_rendering(rgb, sigma, t_vals, directions)


def build():
    return NeRF(nnx.Rngs(0))
