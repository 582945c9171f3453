import keras
from keras import layers


def build(dim=20, memory=12, heads=4, outputs=6):
    query = keras.Input((5, dim), name="query")
    source = keras.Input((8, memory), name="memory")
    attn = layers.MultiHeadAttention(heads, dim // heads, name="attn")
    y, scores = attn(query, source, return_attention_scores=True)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm1")(layers.Add()([query, y]))
    y = layers.Dense(3 * dim, activation="gelu", name="fc1")(x)
    y = layers.Dense(dim, name="fc2")(y)
    x = layers.LayerNormalization(epsilon=1e-5, name="norm2")(layers.Add()([x, y]))
    y = layers.Dense(outputs, name="head")(x)
    return keras.Model([query, source], [y, keras.ops.mean(scores, axis=1)])
