"""The published experiments, as data. Figures are as published: seconds of all timed steps, or items a second."""

from __future__ import annotations

import math

from ..errors import UsageError, nearest
from .records import Entry, Experiment, Figure, Part, Source


def took(low: float, high: float | None = None, gigabytes: float | None = None, named: str = "") -> Figure:
    """A figure in seconds of all timed steps: the lowest, and the highest when there are several."""
    return Figure(seconds=(low, low if high is None else high), gigabytes=gigabytes, named=named)


def entry(subject: str, seconds: float, **figures: Figure) -> Entry:
    """A row of the published table. figures: name of a source -> figure."""
    return Entry(subject, seconds, figures)


def extra(subject: str, seconds: float) -> Entry:
    """A row that the published table does not have."""
    return Entry(subject, seconds, extra=True)


CARDS = "GTX 1070 Ti and RTX 3090 (not published: which of them each figure is from)"
EPOCH_MNIST = 60_000 // 32  # 1,875 steps of batch 32
EPOCH_CIFAR10 = math.ceil(50_000 / 32)  # 1,563 steps, the last one not full
OWN_OPTIMIZER = "the optimizer was not published: {} is this tool's choice, the same in every row"

MLP_MNIST = Experiment(
    "mlp-mnist",
    "Which framework trains a small network faster, and in how much memory, with and without JIT?",
    (
        Part(
            "mlp", "train", 32, EPOCH_MNIST, 20 * EPOCH_MNIST,
            (
                entry("torch:eager", 0.0011, GPU=took(47, 48, 1.5)),
                extra("torch:script", 0.0011),
                entry("jittor", 0.0014, GPU=took(25, 26, 0.77)),
                entry("tensorflow:graph", 0.0012, GPU=took(30, None, 1.2)),
                extra("tensorflow:xla", 0.0007),
            ),
            optimizer="adam", lr=1e-3, cases=20,
        ),
    ),
    (Source("GPU", CARDS, "TensorFlow 2.6, PyTorch 1.9.1, Jittor 1.3.1"),),
    by="step", repeats=3, data="MNIST or Fashion-MNIST", installed="/usr/share/datasets/fashion-mnist",
    notes=("published: one warm-up epoch, then 20 epochs of 1,875 steps; three repeats",),
)  # fmt: skip

RESNET50_CIFAR10 = Experiment(
    "resnet50-cifar10",
    "Which framework trains a convolutional network faster, and does JIT help?",
    (
        Part(
            "resnet50-cifar10", "train", 32, 500, 3 * EPOCH_CIFAR10,
            (
                entry("torch:eager", 0.25, GPU=took(101, 109, 1.8)),
                extra("torch:script", 0.25),
                entry("jittor", 0.5, GPU=took(137, None, 1.0)),
                entry("tensorflow:graph", 0.3, GPU=took(85, 88, 9.8)),
                entry("tensorflow:xla", 0.55, GPU=took(117, 118)),
            ),
            optimizer="rmsprop", lr=1e-3, overhead=150,
        ),
        Part(
            "resnet50-cifar10", "train", 8, 10, 1000,
            (
                entry("torch:eager", 0.09, GPU=took(35, 37)),
                extra("torch:script", 0.09),
                entry("jittor", 0.24, GPU=took(45)),
                entry("tensorflow:graph", 0.1, GPU=took(32)),
                extra("tensorflow:xla", 0.22),
            ),
            optimizer="rmsprop", lr=1e-3, overhead=130,
        ),
    ),
    (Source("GPU", CARDS, "at batch 8 TensorFlow 2.6.3, PyTorch 1.11, Jittor 1.3.1"),),
    by="step", repeats=3, data="CIFAR-10",
    notes=(
        "published: at batch 32, 500 warm-up steps, then 3 epochs of 1,563 steps; three repeats",
        "at batch 8 neither warm-up nor optimizer was published: both are this tool's choice; under WSL2 two of the frameworks "
        "took 54–55 s and 53–54 s",
    ),
)  # fmt: skip

RESNET152_RANDOM = Experiment(
    "resnet152-random",
    "Which framework trains a large network faster on data that cost nothing to load?",
    (
        Part(
            "resnet152", "train", 8, 10, 1000,
            (
                entry("torch:eager", 3, GPU=took(220, 227, 3.2)),
                entry("jittor", 4.5, GPU=took(201, 206, 4.4)),
                entry("tensorflow:graph", 3, GPU=took(221, 225, 7.1)),
                entry("tensorflow:xla", 11, GPU=took(221, 225, 7.1)),
            ),
            optimizer="adam", lr=1e-3, cases=2, overhead=370,
        ),
    ),
    (Source("GPU", CARDS, "versions not published"),),
    by="step", repeats=3,
    notes=("published: random images of 3×224×224; TensorFlow with XLA 'the same' as without; three repeats",),
)  # fmt: skip

TITAN = "RTX Titan"
JITTOR_METHOD = Experiment(
    "jittor-method",
    "How fast is Jittor beside PyTorch when both are warm, synchronised, and given the same weights and the same input?",
    (
        Part(
            "resnet50", "forward", 8, 10, 100,
            (
                entry("torch:eager", 0.5, GPU=Figure(rate=807.48)),
                entry("jittor", 0.45, GPU=Figure(rate=908.99)),
            ),
        ),
        Part("alexnet", "forward", 8, 10, 100, (entry("torch:eager", 0.18), entry("jittor", 0.12))),
    ),
    (Source("GPU", TITAN, "versions not published"),),
    notes=(
        "published: warm-up 10 and rerun 100, or 100 and 1,000; mean |difference| of the outputs 1e-5",
        "its five rules: warm up fully; run many times; synchronise; let memory suffice; check that models and outputs agree",
    ),
)  # fmt: skip


def _lstm(model: str, task: str, *entries: Entry, overhead: float) -> Part:
    optimizer, lr = ("adam", 1e-3) if task == "train" else (None, None)
    return Part(model, task, 128, 10, 50, entries, optimizer, lr, cases=2, overhead=overhead)


def _sequences(cpu: float | None, gpu: float) -> dict[str, Figure]:
    return {**({} if cpu is None else {"CPU": Figure(rate=cpu)}), "GPU": Figure(rate=gpu)}


LSTM_PTB = Experiment(
    "lstm-ptb",
    "What does it cost to write an LSTM flexibly: from primitive operations, from the framework's cell, or as its whole layer?",
    (
        _lstm(
            "lstm-finegrained", "forward",
            entry("torch:eager", 0.5, **_sequences(266.4, 750)),
            entry("torch:script", 0.55, **_sequences(300.1, 2169)),
            entry("tensorflow:eager", 0.6, **_sequences(75.3, 80.5)),
            entry("tensorflow:graph", 0.3, **_sequences(476.3, 2170)),
            entry("tensorflow:while", 0.3, **_sequences(482.7, 1776)),
            overhead=65,
        ),
        _lstm(
            "lstm-finegrained", "train",
            entry("torch:eager", 2.3, **_sequences(65.5, 270)),
            entry("torch:script", 2.3, **_sequences(53.1, 473)),
            entry("tensorflow:eager", 2.2, **_sequences(24.4, 22.7)),
            entry("tensorflow:graph", 0.85, **_sequences(162.7, 1397)),
            entry("tensorflow:while", 1, **_sequences(147.9, 689)),
            overhead=70,
        ),
        _lstm(
            "lstm-cell", "forward",
            entry("torch:eager", 0.45, **_sequences(351.2, 3871)),
            entry("torch:script", 0.55, **_sequences(340.4, 5100)),
            entry("tensorflow:eager", 0.55, **_sequences(104.7, 106.8)),
            entry("tensorflow:graph", 0.2, **_sequences(431.0, 2931)),
            overhead=52,
        ),
        _lstm(
            "lstm-cell", "train",
            entry("torch:eager", 2.3, **_sequences(42.1, 1173)),
            entry("torch:script", 2.3, **_sequences(54.1, 1275)),
            entry("tensorflow:eager", 1.9, **_sequences(41.6, 42.6)),
            entry("tensorflow:graph", 1.4, **_sequences(151.0, 1811)),
            overhead=45,
        ),
        _lstm(
            "lstm-fused", "forward",
            entry("torch:eager", 0.6, **_sequences(None, 14916)),
            extra("torch:script", 0.6),
            entry("tensorflow:eager", 0.5, **_sequences(None, 871)),
            entry("tensorflow:graph", 0.3, **_sequences(None, 4312)),
            overhead=50,
        ),
        _lstm(
            "lstm-fused", "train",
            entry("torch:eager", 2.4, **_sequences(None, 5420)),
            extra("torch:script", 2.6),
            entry("tensorflow:eager", 2, **_sequences(None, 243)),
            entry("tensorflow:graph", 1.3, **_sequences(None, 4121)),
            overhead=20,
        ),
    ),
    (
        Source("CPU", "a CPU of 6 cores", "TensorFlow 2.0 alpha, PyTorch 1.3"),
        Source("GPU", "RTX 2080 Ti", "TensorFlow 2.0 alpha, PyTorch 1.3; the fused layer is cuDNN's"),
    ),
    data="PTB",
    notes=(
        "published: 60 batches, the first 10 to warm up; sequences of 50 of 10,001 words",
        "two rows of the published table have an elapsed time that is not 50 times its seconds a batch; here elapsed differs "
        "from steps × seconds a step by the noisy rounds, which count in elapsed alone",
        OWN_OPTIMIZER.format("Adam with 1e-3"),
    ),
)  # fmt: skip

TF_TORCH_JIT = Experiment(
    "tf-torch-jit",
    "Static or dynamic graphs: TensorFlow, PyTorch, and PyTorch's JIT, traced and scripted?",
    (
        Part(
            "resnet18", "forward", 8, 10, 100,
            (
                entry("torch:eager", 0.27), entry("torch:trace", 0.27), entry("torch:script", 0.27),
                entry("tensorflow:eager", 0.22), entry("tensorflow:graph", 0.15),
            ),
        ),
        Part(
            "dynamic-loop", "forward", 32, 100, 1000,
            (
                entry("torch:eager", 0.0001), extra("torch:trace", 0.0001), entry("torch:script", 0.0002),
                entry("tensorflow:eager", 0.002), entry("tensorflow:graph", 0.0003),
            ),
        ),
    ),
    notes=(
        "no figures were published to compare with: the published rule is torch.jit.trace for simple networks, and "
        "torch.jit.script where a loop's length depends on the input, which a trace cannot hold",
        "models, batch and steps are this tool's choice",
    ),
)  # fmt: skip

VGG16 = Experiment(
    "vgg16",
    "How fast do libraries train VGG-16 with graphs and without, and in how much memory?",
    (
        Part(
            "vgg16", "train", 1, 10, 300,
            (
                entry("torch:eager", 0.75, CPU=took(267), GPU=took(79)),
                entry("tensorlayer:graph", 0.5, CPU=took(192), GPU=took(78)),
                entry("tensorflow:graph", 0.48, CPU=took(193), GPU=took(77)),
                extra("keras-jax", 0.6),
                entry("keras-torch", 1, CPU=took(410, named="Keras, graph"), GPU=took(97, named="Keras, graph")),
                entry("tensorlayer:eager", 0.65, CPU=took(223), GPU=took(104)),
                entry("tensorflow:eager", 0.65, CPU=took(236), GPU=took(103)),
            ),
            optimizer="sgd", lr=1e-3, cases=2, overhead=430,
        ),
    ),
    (
        Source("CPU", "i7-8700", "TensorLayer 2.0, tf.keras, Keras, PyTorch; 2.6–3.2 GB of memory"),
        Source("GPU", "TITAN X", "the same; 8.7–8.9 GB of its memory", batch=32),
    ),
    notes=(
        "published: 300 iterations on a random batch, of 1 on the CPU and of 32 on the GPU; no warm-up was published: 10 steps "
        "here. Only the CPU's batch is run",
        "Keras is published with graphs, as a library of its own; here it is Keras on another backend: torch (eager) and JAX",
        OWN_OPTIMIZER.format("SGD with 1e-3"),
    ),
)  # fmt: skip

EXPERIMENTS: dict[str, Experiment] = {
    each.name: each
    for each in (MLP_MNIST, RESNET50_CIFAR10, RESNET152_RANDOM, JITTOR_METHOD, LSTM_PTB, TF_TORCH_JIT, VGG16)
}


def find(name: str) -> Experiment:
    """The experiment of this name. Raises UsageError, with the nearest name, when there is none."""
    if name not in EXPERIMENTS:
        raise UsageError(f"unknown experiment {name!r}{nearest(name, EXPERIMENTS)} Known: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]
