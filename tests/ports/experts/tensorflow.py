import keras
from keras import layers, ops


def make_expert(dim, hidden, index):
    return keras.Sequential(
        [
            layers.Dense(hidden, activation="gelu", name=f"experts.{index}.fc1"),
            layers.Dense(dim, name=f"experts.{index}.fc2"),
        ],
        name=f"expert_{index}",
    )


def build(dim=12, hidden=20, experts=4, temperature=0.5):
    tokens = keras.Input((5, dim))
    x = layers.LayerNormalization(epsilon=1e-5, name="norm")(tokens)
    logits = layers.Dense(experts, use_bias=False, name="gate")(x)
    share = layers.Softmax()(logits / temperature)
    parts = [make_expert(dim, hidden, index)(x) for index in range(experts)]
    mixed = ops.einsum("nte,nted->ntd", share, ops.stack(parts, axis=2))
    y = layers.Add()([tokens, mixed])
    scores = layers.Dense(6, name="head")(y)
    load = layers.GlobalAveragePooling1D()(share)
    return keras.Model(tokens, [scores, load])
