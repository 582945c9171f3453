"""The published experiments that ``xverify reproduce`` runs: frozen records of what was asked, how, and what was found.

Figures stand here as they were published: seconds of all timed steps, or items a second. They are compared per step or per
item, so that a scaled run compares, too; a model is never made smaller.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ..errors import UsageError, nearest
from ..results.records import Result, Row, overall
from ..training.parity import LONG

LEAST_WARMUP, LEAST_STEPS = 1, 2  # the engine makes two steps before; an interval needs two timed blocks
SCALES = (1.0, 0.5, 0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001)
# Steps that judging training takes, of a row's and of the reference's: whatever the scale, its loss curve is as long. Where a step
# is so long that a quick run draws none, there are fewer.
JUDGING, JUDGING_REFERENCE = 15, 45
JUDGING_LONG, JUDGING_REFERENCE_LONG = 3, 12
GLANCE = 600.0  # seconds that a scaled run is to stay below
WHERE = "two cores of an AMD EPYC"  # what Entry.seconds and Part.overhead were measured on
# Modes whose operations are compiled while the program runs. TensorFlow's graph alone is not: its JIT is XLA.
JIT = ("torch:trace", "torch:script", "torch:compile", "tensorflow:xla", "jittor", "jax", "keras-jax")


@dataclass(frozen=True)
class Source:
    """Where figures were published from. name: of the column. batch: where it is not the part's."""

    name: str
    hardware: str
    versions: str
    batch: int | None = None

    def says(self) -> str:
        parts = [self.hardware, self.versions, f"batch {self.batch}" if self.batch else ""]
        return "; ".join(filter(None, parts))


@dataclass(frozen=True)
class Figure:
    """What was published for a row: (lowest, highest) seconds of all timed steps, or items a second.

    gigabytes: the device's memory. named: what the published row is called, where that is not what the subject is.
    """

    seconds: tuple[float, float] | None = None
    rate: float | None = None
    gigabytes: float | None = None
    named: str = ""


@dataclass(frozen=True)
class Entry:
    """A row. seconds: of a step, on WHERE, for the expected duration alone. figures: by the name of their source.

    extra: the published table has no such row.
    """

    subject: str
    seconds: float
    figures: Mapping[str, Figure] = field(default_factory=dict)
    extra: bool = False

    @property
    def jit(self) -> str:
        return "on" if self.subject in JIT else "off"


@dataclass(frozen=True)
class Part:
    """One model at one task: what one run of the engine measures.

    warmup, steps: as published. cases: batches that take turns. overhead: seconds to start and to judge, on WHERE.
    """

    model: str
    task: str
    batch: int
    warmup: int
    steps: int
    entries: tuple[Entry, ...]
    optimizer: str | None = None
    lr: float | None = None
    cases: int = 4
    threads: int | None = None  # all cores
    overhead: float = 60.0

    @property
    def title(self) -> str:
        learning = f", {self.optimizer} with learning rate {self.lr:g}" if self.optimizer else ""
        return f"{self.model}, {self.task}, batch {self.batch}{learning}"

    def scaled(self, scale: float) -> tuple[int, int]:
        """(steps to warm up, timed steps) at this scale."""
        return max(LEAST_WARMUP, round(scale * self.warmup)), max(LEAST_STEPS, round(scale * self.steps))

    def duration(self, scale: float) -> float:
        """Seconds that it takes on WHERE, as far as its steps there tell."""
        steps = [entry.seconds for entry in self.entries]
        rows, reference = (JUDGING_LONG, JUDGING_REFERENCE_LONG) if steps[0] > LONG else (JUDGING, JUDGING_REFERENCE)
        judging = rows * sum(steps) + reference * steps[0] if self.task == "train" else 0.0
        return self.overhead + judging + sum(self.scaled(scale)) * sum(steps)

    def settings(self, scale: float, data: str | None) -> dict[str, Any]:
        """What ``engine.run`` is given beside the model and the subjects."""
        warmup, steps = self.scaled(scale)
        # A request to a worker is at most the warm-up, or a twentieth of the steps; ten times that is a hang.
        longest = max(warmup, steps / 20) * max(entry.seconds for entry in self.entries)
        settings: dict[str, Any] = {
            "task": self.task, "batch": self.batch, "warmup": warmup, "rerun": steps, "cases": self.cases,
            "threads": self.threads, "timeout": max(1800.0, 10 * longest),
        }  # fmt: skip
        if self.task == "train":
            settings |= {"optimizer": self.optimizer, "lr": self.lr, "data": data}
        return settings

    def per_step(self, figure: Figure, source: Source) -> tuple[float, float]:
        """A published figure as seconds a step: (lowest, highest)."""
        if figure.seconds is not None:
            return figure.seconds[0] / self.steps, figure.seconds[1] / self.steps
        assert figure.rate is not None
        step = (source.batch or self.batch) / figure.rate
        return step, step

    def per_second(self, figure: Figure, source: Source) -> tuple[float, float]:
        """A published figure as items a second: (lowest, highest)."""
        low, high = self.per_step(figure, source)
        batch = source.batch or self.batch
        return batch / high, batch / low


@dataclass(frozen=True)
class Experiment:
    """A published experiment.

    by: what figures are compared as, "step" (seconds) or "item" (items a second). repeats: as published. data: the data set that
    it was run on; "" for random data. installed: where a Debian package puts such data. notes: what the reader of the table
    should know.
    """

    name: str
    question: str
    parts: tuple[Part, ...]
    sources: tuple[Source, ...] = ()
    by: str = "item"
    repeats: int = 1
    data: str = ""
    installed: str = ""
    notes: tuple[str, ...] = ()

    def duration(self, scale: float, repeats: int = 1) -> float:
        return repeats * sum(part.duration(scale) for part in self.parts)

    def place(self, part: Part) -> int:
        """Which of its parts this is; two may be equal."""
        return next(index for index, each in enumerate(self.parts) if each is part)

    def glance(self) -> float:
        """The largest of SCALES that stays below GLANCE; the smallest, when none does."""
        return next((scale for scale in SCALES if self.duration(scale) < GLANCE), SCALES[-1])

    def usual_repeats(self, scale: float) -> int:
        """As published at scale 1, and once below: a scaled run is a glance."""
        return self.repeats if scale == 1 else 1


@dataclass(frozen=True)
class Outcome:
    """What one run of a part left: its result, or why there is none."""

    part: Part
    repeat: int
    result: Result | None = None
    failure: str = ""

    @property
    def verdict(self) -> str:
        return overall(self.counted()) if self.result is not None else "ERROR"

    def counted(self) -> list[Row]:
        """The rows that the exit code depends on: not those that the published table has not, and that cannot run here."""
        extra = {entry.subject for entry in self.part.entries if entry.extra}
        absent = ("unsupported", "not-installed")
        rows = self.result.rows if self.result is not None else ()
        return [row for row in rows if row.subject not in extra or row.status not in absent]


@dataclass(frozen=True)
class Reproduction:
    """An experiment as far as it has been run. data: where batches come from, one phrase. stopped: why it ended early."""

    experiment: Experiment
    scale: float
    repeats: int
    data: str
    created: str
    outcomes: tuple[Outcome, ...] = ()
    stopped: str = ""

    @property
    def complete(self) -> bool:
        return len(self.outcomes) == self.repeats * len(self.experiment.parts) and not self.stopped

    @property
    def verdict(self) -> str:
        """The worst of its parts', in the order of ``records.overall``."""
        found = {outcome.verdict for outcome in self.outcomes} | (set() if self.complete else {"ERROR"})
        return next((verdict for verdict in ("FAIL", "ERROR", "INCONCLUSIVE") if verdict in found), "PASS")

    def of(self, part: Part) -> list[Outcome]:
        return [outcome for outcome in self.outcomes if outcome.part is part]


def check_scale(scale: float) -> None:
    if not (0 < scale <= 1):
        raise UsageError(
            f"--scale is {scale:g}: it must be above 0 and at most 1, e.g. 0.02 for a fiftieth of the steps"
        )


def find(name: str) -> Experiment:
    if name not in EXPERIMENTS:
        raise UsageError(f"unknown experiment {name!r}{nearest(name, EXPERIMENTS)} Known: {', '.join(EXPERIMENTS)}")
    return EXPERIMENTS[name]


def readable(seconds: float) -> str:
    """``40 s``, ``9 min``, ``11 h``."""
    for unit, size in (("h", 3600.0), ("min", 60.0)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{math.ceil(seconds)} s"


# -- the facts --------------------------------------------------------------------------------------------------------


def took(low: float, high: float | None = None, gigabytes: float | None = None, named: str = "") -> Figure:
    return Figure(seconds=(low, low if high is None else high), gigabytes=gigabytes, named=named)


def entry(subject: str, seconds: float, **figures: Figure) -> Entry:
    """A row of the published table; its figures by the name of their source."""
    return Entry(subject, seconds, figures)


def extra(subject: str, seconds: float) -> Entry:
    """A row that the published table has not."""
    return Entry(subject, seconds, extra=True)


CARDS = "GTX 1070 Ti and RTX 3090 (which of them a figure is of is not told)"
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
    (Source("GPU", CARDS, "versions not told"),),
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
    (Source("GPU", TITAN, "versions not told"),),
    notes=(
        "published: warm-up 10 and rerun 100, or 100 and 1,000; mean |difference| of the outputs 1e-5",
        "its five rules: warm up fully; run many times; synchronise; let memory suffice; check that models and outputs agree",
    ),
)  # fmt: skip


def _lstm(model: str, task: str, *entries: Entry, overhead: float) -> Part:
    settings: dict[str, Any] = {"optimizer": "adam", "lr": 1e-3} if task == "train" else {}
    return Part(model, task, 128, 10, 50, entries, cases=2, overhead=overhead, **settings)


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
        "published: 60 batches, of which 10 to warm up; sequences of 50 of 10,001 words",
        "two rows of the published table have an elapsed time that is not 50 times its seconds a batch; here elapsed is "
        "steps × seconds a step in every row",
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
        "no figures were published that could stand beside these: its rule is torch.jit.trace for simple networks, and "
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
