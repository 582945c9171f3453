import keras
from keras import layers, ops


def build(words=8, width=10, hidden=16, classes=5):
    tokens = keras.Input((None,), dtype="int32", name="tokens")
    mask = ops.cast(ops.not_equal(tokens, 0), "float32")
    x = layers.Embedding(words, width, name="embed")(tokens)
    states = layers.LSTM(hidden, return_sequences=True, name="lstm")(x)
    x = layers.Dense(9, activation="tanh", name="project")(states)
    scores = layers.Flatten()(layers.Dense(1, use_bias=False, name="score")(x))
    weights = layers.Softmax()(scores + (1.0 - mask) * -1e9)
    pooled = layers.Dot(axes=1)([weights, states])
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(pooled)
    return keras.Model(tokens, [layers.Dense(classes, name="classify")(x), weights])
