from jittor import nn


class LanguageModel(nn.Module):
    def __init__(self, vocabulary, embedding, hidden, layers):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers)
        self.fc = nn.Linear(hidden, vocabulary)

    def execute(self, tokens):
        x = self.embedding(tokens)
        # Jittor's batch_first transposes the input but not the output, so both are transposed here.
        x, _ = self.lstm(x.permute(1, 0, 2))
        return self.fc(x.permute(1, 0, 2))


def build(vocabulary=10_001, embedding=128, hidden=256, layers=3, length=50):
    return LanguageModel(vocabulary, embedding, hidden, layers)
