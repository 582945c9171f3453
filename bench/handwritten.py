"""The Jittor method written by hand, as one would without xverify: python handwritten.py FRAMEWORK MODEL BATCH THREADS WEIGHTS.

WEIGHTS is the .npz that xverify's own worker loads: the same weights, and the same history of the process's memory.

For every line with a number n on standard input, times n forward passes and prints the seconds.
"""

import os
import sys
import time

import numpy as np

framework, model_name, batch, threads = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
replies = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
weights = dict(np.load(sys.argv[5]))
if model_name == "mlp":
    weights = {name.replace("fc1", "0").replace("fc2", "2"): array for name, array in weights.items()}
shape = (batch, 784) if model_name == "mlp" else (batch, 3, 224, 224)


def torch_loop():
    import torch
    from torch import nn

    torch.set_num_threads(threads)
    if model_name == "mlp":
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    else:
        from xverify.frameworks.torch import declare_torchvision_ops

        declare_torchvision_ops(torch)
        from torchvision.models import resnet50

        model = resnet50()
    model.load_state_dict({name: torch.from_numpy(array) for name, array in weights.items()}, strict=False)
    model.eval()
    x = torch.randn(shape)

    def loop(rerun):
        with torch.inference_mode():
            start = time.perf_counter()
            for _ in range(rerun):
                y = model(x)  # noqa: F841  # kept, as a user would
            return time.perf_counter() - start

    return loop


def jittor_loop():
    import jittor as jt
    from jittor import nn

    if model_name == "mlp":
        model = nn.Sequential(nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 10))
    else:
        from jittor.models import resnet50

        model = resnet50()
    model.load_parameters(weights)
    model.eval()
    x = jt.randn(shape)

    def loop(rerun):
        with jt.no_grad():
            jt.sync_all(True)
            start = time.perf_counter()
            for _ in range(rerun):
                y = model(x)
                y.sync()
            jt.sync_all(True)
            return time.perf_counter() - start

    return loop


loop = {"torch": torch_loop, "jittor": jittor_loop}[framework]()
for line in sys.stdin:
    print(loop(int(line)), file=replies, flush=True)
