from keras import Input, Model, layers, ops

from xverify.models.keras_layers import Position, block


class CausalSoftmax(layers.Layer):
    """Softmax of each token over itself and the tokens before it.

    The mask is part of this layer, so that the input of the layer is finite.
    """

    def call(self, scores):
        place = ops.arange(scores.shape[-1])
        future = place > place[:, None]
        return ops.softmax(ops.where(future, float("-inf"), scores), -1)


class Head(layers.Layer):
    """Computes logits with the weight of the token embedding; the layer has no weight itself."""

    def __init__(self, tok, **more):
        super().__init__(**more)
        self.tok = tok

    def call(self, x):
        return x @ ops.transpose(self.tok.embeddings)


def build(vocabulary=1000, dim=128, depth=4, heads=4, length=64):
    tok = layers.Embedding(vocabulary, dim, name="tok")
    inputs = Input((length,), dtype="int64", name="tokens")
    x = tok(inputs)
    x = Position(name="pos")(x)
    for index in range(depth):
        x = block(x, heads, CausalSoftmax, 1e-5, f"blocks.{index}")
    x = layers.LayerNormalization(epsilon=1e-5, name="ln")(x)
    x = Head(tok, name="head")(x)
    return Model(inputs, x, name="gpt")
