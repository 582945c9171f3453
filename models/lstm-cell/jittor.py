from jittor import nn

from xverify.models.jittor_layers import UnrolledLSTM


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return UnrolledLSTM(nn.LSTMCell, vocabulary, embedding, hidden, layers, length)
