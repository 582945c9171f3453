import keras
import numpy as np
from keras import layers

MEAN = np.array([48.0, 52.5, 50.0, 41.0, 55.0], "float32")
STD = np.array([28.0, 30.5, 25.0, 33.0, 29.0], "float32")


def build(cities=40, devices=6, hours=24):
    city = keras.Input((), dtype="int64", name="city_id")
    device = keras.Input((), dtype="int64", name="device_id")
    hour = keras.Input((), dtype="int64", name="hour_id")
    numbers = keras.Input((5,), name="numbers")
    scaled = layers.Normalization(mean=MEAN, variance=np.square(STD))(numbers)

    crossed = city * devices + device
    wide = layers.Add()(
        [
            layers.Embedding(cities * devices, 1, name="cross")(crossed),
            layers.Dense(1, use_bias=False, name="wide")(scaled),
        ]
    )

    x = layers.Concatenate()(
        [
            layers.Embedding(cities, 8, name="city")(city),
            layers.Embedding(devices, 3, name="device")(device),
            layers.Embedding(hours, 5, name="hour")(hour),
            scaled,
        ]
    )
    x = layers.Dense(32, activation="relu", name="deep.0")(x)
    x = layers.Dense(16, activation="relu", name="deep.2")(x)
    deep = layers.Dense(1, name="deep.4")(x)
    clicked = layers.Activation("sigmoid")(layers.Add()([wide, deep]))
    return keras.Model([city, device, hour, numbers], clicked)
