from keras import Input, Model
from keras.layers import Dense, Embedding

from xverify.models.keras_layers import LSTM


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    inputs = Input((length,), dtype="int64", name="tokens")
    x = Embedding(vocabulary, embedding, name="embedding")(inputs)
    for layer in range(layers):
        x = LSTM(hidden, layer, name="lstm")(x)
    x = Dense(vocabulary, name="fc")(x)
    return Model(inputs, x, name="lstm")
