from keras import Input, Model
from keras.layers import GRU, Bidirectional, Concatenate, Dense, Dropout, Embedding


def build(words=40, width=12, hidden=14, tags=6):
    inputs = Input((9,), dtype="int64")
    x = Embedding(words, width, name="embed")(inputs)
    x = Dropout(0.2)(x)
    y = Bidirectional(GRU(hidden, return_sequences=True), name="gru")(x)
    z = Dense(20, activation="elu", name="dense")(Concatenate()([y, x]))
    return Model(inputs, Dense(tags, name="out")(z))
