from paddle import nn


class LanguageModel(nn.Layer):
    def __init__(self, vocabulary, embedding, hidden, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers)
        self.fc = nn.Linear(hidden, vocabulary)

    def forward(self, tokens):
        x = self.embedding(tokens)
        x, _ = self.lstm(x)
        return self.fc(x)


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return LanguageModel(vocabulary, embedding, hidden, layers)
