import keras
import tensorflow as tf
from keras import layers


def build():
    obs = keras.Input((6,), name="obs")
    hidden = layers.Dense(16, activation="tanh", name="actor.0")(obs)
    logits = layers.Dense(4, name="actor.2")(hidden)
    hidden = layers.Dense(16, activation="tanh", name="critic.0")(obs)
    value = layers.Flatten()(layers.Dense(1, name="critic.2")(hidden))
    return keras.Model(obs, [logits, value[:, 0]])


def train_state(model):
    return keras.optimizers.Adam(2.5e-3, epsilon=1e-5)


def normalised(x):
    x = x - tf.reduce_mean(x)
    count = tf.cast(tf.size(x), x.dtype)
    deviation = tf.sqrt(tf.reduce_sum(x**2) / (count - 1.0))
    return x / (deviation + 1e-8)


def train_step(model, optimizer, batch):
    adv = normalised(batch["advantage"])
    with tf.GradientTape() as tape:
        logits, value = model(batch["obs"], training=True)
        logp_all = tf.nn.log_softmax(logits)
        logp = tf.gather(logp_all, batch["action"], batch_dims=1)
        ratio = tf.exp(logp - batch["old_logp"])
        surrogate = tf.minimum(ratio * adv, tf.clip_by_value(ratio, 0.8, 1.2) * adv)
        policy_loss = -tf.reduce_mean(surrogate)

        moved = tf.clip_by_value(value - batch["old_value"], -0.2, 0.2)
        error = tf.square(value - batch["returns"])
        error_clipped = tf.square(batch["old_value"] + moved - batch["returns"])
        value_loss = 0.5 * tf.reduce_mean(tf.maximum(error, error_clipped))

        entropy = -tf.reduce_mean(tf.reduce_sum(tf.exp(logp_all) * logp_all, axis=1))
        loss = policy_loss + 0.5 * value_loss - 0.01 * entropy
    gradients = tape.gradient(loss, model.trainable_variables)
    gradients, _ = tf.clip_by_global_norm(gradients, 0.5)
    optimizer.apply_gradients(zip(gradients, model.trainable_variables))
    return {"policy": policy_loss, "value": value_loss, "entropy": entropy}
