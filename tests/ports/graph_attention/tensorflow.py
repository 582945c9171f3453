import keras
import tensorflow as tf
from keras import layers


class GraphAttention(layers.Layer):
    canonical_weights = {"a_src": ("att_src", None), "a_dst": ("att_dst", None), "bias": ("bias", None)}

    def __init__(self, units, heads, concat=True, name=None):
        super().__init__(name=name)
        self.units, self.heads, self.concat = units, heads, concat
        self.lin = layers.Dense(units * heads, use_bias=False, name=f"{name}.lin")

    def build(self, nodes_shape, edges_shape):
        self.lin.build(nodes_shape)
        self.a_src = self.add_weight(shape=(self.heads, self.units), name="a_src")
        self.a_dst = self.add_weight(shape=(self.heads, self.units), name="a_dst")
        size = self.units * (self.heads if self.concat else 1)
        self.bias = self.add_weight(shape=(size,), initializer="zeros", name="bias")

    def call(self, nodes, edges):
        n = tf.shape(nodes)[0]
        source, target = edges[0], edges[1]
        h = tf.reshape(self.lin(nodes), (-1, self.heads, self.units))
        score_src = tf.reduce_sum(h * self.a_src, -1)
        score_dst = tf.reduce_sum(h * self.a_dst, -1)
        score = tf.gather(score_src, source) + tf.gather(score_dst, target)
        score = tf.nn.leaky_relu(score, alpha=0.2)
        score = tf.exp(score - tf.gather(tf.math.unsorted_segment_max(score, target, n), target))
        total = tf.math.unsorted_segment_sum(score, target, n)
        attention = score / (tf.gather(total, target) + 1e-16)
        messages = tf.gather(h, source) * attention[:, :, None]
        out = tf.math.unsorted_segment_sum(messages, target, n)
        if not self.concat:
            return tf.reduce_mean(out, axis=1) + self.bias
        return tf.reshape(out, (-1, self.heads * self.units)) + self.bias


class GAT(keras.Model):
    def __init__(self, hidden=6, classes=5, heads=3):
        super().__init__()
        self.conv1 = GraphAttention(hidden, heads, name="conv1")
        self.conv2 = GraphAttention(classes, heads, concat=False, name="conv2")

    def call(self, inputs):
        nodes, edges = inputs
        loops = tf.range(tf.shape(nodes)[0], dtype=edges.dtype)
        edges = tf.concat([edges, tf.stack([loops, loops])], axis=1)
        x = tf.nn.elu(self.conv1(nodes, edges))
        return tf.nn.log_softmax(self.conv2(x, edges))


def build():
    return GAT()
