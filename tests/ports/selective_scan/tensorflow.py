import keras
from keras import layers, ops


class Mixer(layers.Layer):
    canonical_weights = {"A_log": ("A_log", None), "D": ("D", None)}

    def __init__(self, width, inner, states, rank, kernel, name):
        super().__init__(name=name)
        self.inner, self.states, self.rank = inner, states, rank
        self.in_proj = layers.Dense(2 * inner, use_bias=False, name=f"{name}.in_proj")
        self.conv1d = layers.DepthwiseConv1D(kernel, padding="valid", name=f"{name}.conv1d")
        self.pad = layers.ZeroPadding1D((kernel - 1, 0))
        self.x_proj = layers.Dense(rank + 2 * states, use_bias=False, name=f"{name}.x_proj")
        self.dt_proj = layers.Dense(inner, activation="softplus", name=f"{name}.dt_proj")
        self.out_proj = layers.Dense(width, use_bias=False, name=f"{name}.out_proj")

    def build(self, shape):
        self.A_log = self.add_weight(shape=(self.inner, self.states), name="A_log")
        self.D = self.add_weight(shape=(self.inner,), initializer="ones", name="D")

    def call(self, hidden):
        x, z = ops.split(self.in_proj(hidden), 2, axis=-1)
        x = ops.silu(self.conv1d(self.pad(x)))
        dt, B, C = ops.split(self.x_proj(x), [self.rank, self.rank + self.states], axis=-1)
        dt = self.dt_proj(dt)
        A = -ops.exp(self.A_log)
        decay = ops.exp(dt[..., None] * A)
        drive = (dt * x)[..., None] * B[:, :, None, :]
        state = ops.zeros_like(drive[:, 0])
        outputs = []
        for i in range(x.shape[1]):
            state = decay[:, i] * state + drive[:, i]
            outputs.append(ops.einsum("bis,bs->bi", state, C[:, i]))
        y = ops.stack(outputs, axis=1) + self.D * x
        return self.out_proj(y * ops.silu(z))


class Mamba(keras.Model):
    def __init__(self, words, width, depth, **sizes):
        super().__init__()
        self.embedding = layers.Embedding(words, width, name="embedding")
        self.norms = [layers.RMSNormalization(epsilon=1e-5, name=f"layers.{i}.norm") for i in range(depth)]
        self.mixers = [Mixer(width, name=f"layers.{i}.mixer", **sizes) for i in range(depth)]
        self.norm_f = layers.RMSNormalization(epsilon=1e-5, name="norm_f")
        self.lm_head = layers.Dense(words, use_bias=False, name="lm_head")

    def call(self, ids):
        x = self.embedding(ids)
        for norm, mixer in zip(self.norms, self.mixers):
            x = x + mixer(norm(x))
        return self.lm_head(self.norm_f(x))


def build():
    return Mamba(words=60, width=12, depth=2, inner=20, states=5, rank=3, kernel=4)
