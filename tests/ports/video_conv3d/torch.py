from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv3d(3, 6, 3, stride=(1, 2, 2), padding=1, bias=False),
            nn.BatchNorm3d(6),
            nn.ReLU(inplace=True),
            nn.MaxPool3d((1, 3, 3), stride=(1, 2, 2), padding=(0, 1, 1)),
            nn.Conv3d(6, 8, (3, 1, 1), padding=(1, 0, 0)),
            nn.LeakyReLU(0.1),
            nn.Conv3d(8, 16, (1, 3, 3), padding=(0, 1, 1)),
            nn.AvgPool3d((2, 1, 1)),
        )
        self.classifier = nn.Linear(16, 5)

    def forward(self, film):
        x = self.features(film)
        x = x.mean((3, 4)).amax(2)
        return self.classifier(x)


def build():
    return Net()
