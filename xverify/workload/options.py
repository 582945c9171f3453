"""Every setting of a run, declared once.

Each field of the records below is a setting. The field has the type; ``option(...)`` gives the default and all other properties.
The command line of ``xverify run``, the signature of ``xverify.run``, the fields of a request, the checks of values, and the help
are made from these fields.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError
from .declaration import LARGEST, Option, declared, option, shown
from .launch import LAUNCHERS
from .ranks import PLANS
from .recipe import LOSS_SCALES, PRECISIONS
from .schedule import KINDS
from .sizes import parse as parse_sizes

FilePath = str | Path
# The headings of the help, in order.
GROUPS = ("what to run", "how to measure", "machine", "training (--task train)", "output")
WHAT, HOW, MACHINE, TRAINING, OUTPUT = GROUPS
TASKS = ("forward", "train", "decode")
EFFORTS = ("quick", "standard", "rigorous")
DEVICES = ("cpu", "cuda")
OWN_WEIGHTS = "own"  # in the place of a weight file: keep what the reference's build() makes
PROBE_WEIGHTS = "probe"  # in the place of a weight file: draw the weights from the seed
NO_FILES = (OWN_WEIGHTS, PROBE_WEIGHTS)
ALLOCATORS = ("keep", "system")
OPTIMIZERS = ("sgd", "adam", "adamw", "rmsprop", "adagrad", "lion", "adafactor")
MOST_THREADS = max(1024, 16 * (os.cpu_count() or 1))  # a receipt may come from a machine with more cores
MOST_RANKS = 64  # of one machine; each is a process
MOST_STEPS = 10**6  # each has a place in memory
MOST_GB = 10**9
OF_TIMING = ("warmup", "rerun", "time_input")  # settings that have no meaning with no_timing


def _cores(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--pin {text}: write cores, e.g. --pin 0,1") from None


def _interpreter(text: str) -> tuple[str, str]:
    name, equals, path = text.partition("=")
    if not equals or not path:
        raise UsageError(f"--python {text}: write FRAMEWORK=PATH, e.g. jittor=envs/jittor/bin/python")
    return name, path


def _names(text: str) -> list[str]:
    return text.split(",")


def _shards(text: str) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--shards {text}: write one whole number for each rank, e.g. --shards 3,1") from None


def _hosts(text: str) -> tuple[str, ...]:
    return tuple(text.split(","))


def _batches(text: str) -> int | tuple[int, ...]:
    try:
        found = tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UsageError(f"--batch is {shown(text)}: it must be a whole number, or several, e.g. --batch 1,7") from None
    return found if len(found) > 1 else found[0]


def _sizes(text: str) -> tuple[str, tuple[int, ...]]:
    return parse_sizes(text, "; the model stands before --sizes")


@dataclass(frozen=True, kw_only=True)
class CommonSettings:
    """The settings of every task, which a request keeps under the same names."""

    task: str = option(
        "forward", f"one or more of: {', '.join(TASKS)}", group=WHAT, metavar="LIST", choices=TASKS, many=True
    )
    weights: FilePath | None = option(
        None,
        "trained weights: .safetensors .npz .pt .pth .pkl .onnx .gguf, or the index or folder of sharded .safetensors files; own: "
        "what the reference's build() makes; probe: drawn from the seed",
        group=WHAT, metavar="FILE", path="either", instead=NO_FILES, unset="the folder's, else drawn from the seed",
    )  # fmt: skip
    trust: bool = option(False, "also read weight files that can run code when they are read", group=WHAT)
    max_weights: float | None = option(
        None, "the greatest size of the arrays of a weight file, GB", group=WHAT, metavar="GB", above=0, most=MOST_GB, unit="GB",
        unset="1, or twice the file",
    )  # fmt: skip
    batch: int | Sequence[int] | None = option(
        None, "items a call; of several, e.g. 1,7, all are judged, and the first is timed", group=HOW, metavar="N", least=1,
        most=2**31 - 1, parse=_batches, unset="the model's own",
    )  # fmt: skip
    warmup: int | None = option(
        None, "make exactly N untimed calls first", group=HOW, metavar="N", least=0, unset="until the speed is steady"
    )
    rerun: int | None = option(
        None, "make exactly N timed calls", group=HOW, metavar="N", least=1, unset="as many as fit the time"
    )
    no_timing: bool = option(
        False,
        "give the verdict alone: no warm-up, no timed calls, no speed and no memory; --effort says how many steps are checked",
        group=HOW,
    )
    effort: str = option(
        "quick",
        "quick: one process run, no verdict on speed; standard: 6 to 12; rigorous: 12 to 20; with --no-timing always one. Above "
        "quick, more training steps are checked",
        group=HOW, metavar="EFFORT", choices=EFFORTS,
    )  # fmt: skip
    max_seconds: float | None = option(
        None, "stop after S seconds, with the results so far", group=HOW, metavar="S", above=0, unit="seconds",
        unset="no limit",
    )  # fmt: skip
    cases: int = option(4, "input cases that are compared", group=HOW, metavar="N", least=1, most=MOST_STEPS)
    seed: int = option(0, "seed of drawn weights and inputs", group=HOW, metavar="N", least=0, most=LARGEST)
    strict: bool = option(
        False,
        "count DRIFT, otherwise a warning, as a failure, and ask for a verdict on every output and layer",
        group=HOW,
    )
    require: float | None = option(
        None, "the relative error that must show in every output; a row that would not show it is UNTESTED", group=HOW,
        metavar="X", above=0, unset="0.01",
    )  # fmt: skip
    threads: int | None = option(
        None, "threads of every framework", group=MACHINE, metavar="N", least=1, most=MOST_THREADS, unset="all cores"
    )
    pin: Sequence[int] = option(
        (), "cores that the subjects may use, e.g. 0,1", group=MACHINE, metavar="LIST", parse=_cores, unset="all"
    )
    device: str = option("cpu", f"one of: {', '.join(DEVICES)}", group=MACHINE, metavar="DEVICE", choices=DEVICES)
    allocator: str = option(
        "keep",
        "keep: freed memory stays with every subject, so a warm call has no page faults; "
        "system: the C library's own rule, as in a plain script",
        group=MACHINE, metavar="POLICY", choices=ALLOCATORS,
    )  # fmt: skip
    python: Mapping[str, str] | None = option(
        None, "run a framework in another interpreter; may be repeated", group=MACHINE, metavar="FRAMEWORK=PATH",
        parse=_interpreter, repeatable=True,
    )  # fmt: skip
    timeout: float = option(
        1800.0, "seconds that one step of a subject may take", group=MACHINE, metavar="S", above=0, unit="seconds"
    )
    memory: float | None = option(
        None, "memory that each worker process may allocate, GB", group=MACHINE, metavar="GB", above=0, most=MOST_GB, unit="GB",
        unset="no limit",
    )  # fmt: skip
    total_memory: float | None = option(
        None, "memory for all processes together, GB; subjects that need more for weights and activations are measured in "
        "turns, each with the baseline", group=MACHINE, metavar="GB", above=0, most=MOST_GB, unit="GB", unset="what is available",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class OptimizerSettings:
    """The settings that become one ``Optimizer`` of the request."""

    optimizer: str | None = option(
        None, f"one of: {', '.join(OPTIMIZERS)}", group=TRAINING, metavar="NAME", choices=OPTIMIZERS, task="train",
        unset="sgd",
    )  # fmt: skip
    lr: float | None = option(None, "learning rate", group=TRAINING, metavar="X", task="train", unset="as in torch")
    momentum: float | None = option(None, "momentum of sgd", group=TRAINING, metavar="X", task="train", unset="0")
    nesterov: bool = option(False, "use Nesterov momentum", group=TRAINING, task="train")
    weight_decay: float | None = option(
        None,
        "weight decay",
        group=TRAINING,
        metavar="X",
        task="train",
        unset="as in torch: 0.01 for adamw, otherwise 0",
    )
    clip_norm: float | None = option(
        None, "the largest norm of all gradients together", group=TRAINING, metavar="X", task="train", above=0,
        unset="the spec's, else no clipping",
    )  # fmt: skip
    schedule: str | None = option(
        None, f"KIND:STEPS[:WARMUP], with the kinds {', '.join(KINDS)}", group=TRAINING, metavar="SCHEDULE", task="train",
        unset="the spec's, else a constant rate",
    )  # fmt: skip
    accumulate: int | None = option(
        None, "micro-batches into which every batch is split", group=TRAINING, metavar="N", task="train", least=1,
        unset="the spec's, else 1",
    )  # fmt: skip
    average: float | None = option(
        None, "decay of an exponential moving average of the weights", group=TRAINING, metavar="X", task="train",
        unset="the spec's, else no average",
    )  # fmt: skip
    amsgrad: bool = option(
        False, "divide by the largest second moment so far (adam, adamw)", group=TRAINING, task="train"
    )
    precision: str | None = option(
        None, f"in which models compute, one of: {', '.join(PRECISIONS)}; weights stay in float32", group=TRAINING,
        metavar="DTYPE", task="train", choices=PRECISIONS, unset="the spec's, else float32",
    )  # fmt: skip
    loss_scale: str | None = option(
        None, "of float16, one of: dynamic, off", group=TRAINING, metavar="WHICH", task="train", choices=LOSS_SCALES,
        unset="the spec's, else dynamic",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainingSettings:
    """The settings of a training run that a request keeps under the same names."""

    match_optimizer: bool = option(
        False, "compute torch's formula exactly in every framework, instead of the framework's own optimizer",
        group=TRAINING, task="train",
    )  # fmt: skip
    steps: int | None = option(
        None, "steps of the loss curve, and of each training of --seeds; of a train_step, also those that are compared",
        group=TRAINING, metavar="N", task="train", least=2, most=MOST_STEPS, unset="by --effort; with --seeds 100",
    )  # fmt: skip
    seeds: int | None = option(
        None, "also train every subject from N seeds, and compare the end losses by statistics", group=TRAINING,
        metavar="N", task="train", least=2, most=MOST_STEPS, unset="no such trainings",
    )  # fmt: skip
    dropout_masks: bool = option(
        False, "also check one pass with dropout, in which every framework is given the same masks", group=TRAINING,
        task="train",
    )  # fmt: skip
    data: FilePath | None = option(
        None, "folder with MNIST (IDX), CIFAR-10 (binary) or PTB (text) files", group=TRAINING, metavar="DIR",
        task="train", path="folder", unset="synthetic batches",
    )  # fmt: skip
    time_input: bool = option(
        False, "also time the conversion of every batch to the framework's tensors", group=TRAINING, task="train"
    )
    ranks: int | None = option(
        None, "train every subject in N processes (torch) or on N devices (JAX, Flax, TensorFlow), and compare with the step of "
        "one process on the whole batch, also in speed",
        group=TRAINING, metavar="N", task="train", least=2, most=MOST_RANKS, unset="one process",
    )  # fmt: skip
    plan: str | None = option(
        None, f"how ranks divide the work, one of: {', '.join(PLANS)}; parallelize(model, mesh) of the model file makes tp and own",
        group=TRAINING, metavar="PLAN", task="train", choices=tuple(PLANS), unset="ddp",
    )  # fmt: skip
    shards: Sequence[int] = option(
        (), "proportions of the batch on the ranks, e.g. 3,1", group=TRAINING, metavar="LIST", task="train", least=1,
        parse=_shards, unset="even",
    )  # fmt: skip
    launcher: str | None = option(
        None, f"what starts the ranks, one of: {', '.join(LAUNCHERS)}; with its own options, e.g. 'ssh -p 2222'; "
        "implies --no-timing",
        group=TRAINING, metavar="COMMAND", task="train", unset="this process, on this machine",
    )  # fmt: skip
    hosts: Sequence[str] = option(
        (), "machines on which ssh or srun start them, e.g. node1,node2", group=TRAINING, metavar="LIST", task="train",
        parse=_hosts, unset="of srun: chosen by Slurm",
    )  # fmt: skip
    rendezvous: str | None = option(
        None, "where they meet: the machine of rank 0 and a port of it", group=TRAINING, metavar="HOST:PORT", task="train",
        unset="a free port, where all ranks are on this machine",
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class RunSettings(TrainingSettings, OptimizerSettings, CommonSettings):
    """All settings of a run."""

    sizes: Mapping[str, Sequence[int]] | None = option(
        None, "sizes of axes that the spec names, and of batch; of several, all are judged, and the first is timed", group=HOW,
        metavar="NAME=SIZES", parse=_sizes, repeatable=True, words=True, between=",", unset="the model's own",
    )  # fmt: skip

    def for_task(self, task: str) -> RunSettings:
        """The same settings for one task, of several; those that belong to another task get their defaults.

        Outputs are judged at every size, and training and decoding at the first one.
        """
        others = {each.name: each.default for each in declared(type(self)) if each.task and each.task != task}
        if task != "forward":
            others["batch"] = self.batch[0] if isinstance(self.batch, Sequence) and self.batch else self.batch
            others["sizes"] = {name: sizes[:1] for name, sizes in self.sizes.items()} if self.sizes else None
        return replace(self, **{**others, "task": task})


@dataclass(frozen=True, kw_only=True)
class RunArguments:
    """The arguments of ``xverify.run`` that are no settings of the run."""

    subjects: Sequence[str] | None = option(
        None,
        "framework[:mode],..., or a file as NAME=FILE.py[:FUNCTION][@MODE] or NAME=FILE.gguf; the first is the baseline of time "
        "ratios",
        group=WHAT, metavar="LIST", parse=_names, unset="every installed framework",
    )  # fmt: skip
    json: FilePath | None = option(
        None, "write the result file, after every process run and at the end", group=OUTPUT, metavar="FILE",
        path="written",
    )  # fmt: skip
    receipt: FilePath | None = option(
        None, "keep weights, inputs, settings, versions, model files and result in this new folder, for xverify replay",
        group=OUTPUT, metavar="DIR", path="new folder",
    )  # fmt: skip
    resume: bool = option(False, "continue the run of --json FILE: add the process runs that it lacks", group=OUTPUT)
    force: bool = option(False, "replace files that are there and that xverify did not write", group=OUTPUT)


@dataclass(frozen=True, kw_only=True)
class Display:
    """The options that only the command line has: what it prints and draws."""

    curve: str | None = option(
        None, "draw the loss curves to FILE.png or FILE.svg", group=TRAINING, metavar="FILE", task="train", path="written"
    )  # fmt: skip
    layers: bool = option(False, "also print the verdict on every layer", group=OUTPUT)
    details: bool = option(
        False,
        "also print times and memory in detail, the loss curves, and every sentence on what was checked",
        group=OUTPUT,
    )
    quiet: bool = option(False, "print only the line of the verdict, and no progress", group=OUTPUT)


def named(name: str, **changes: Any) -> Option:
    """The option of this name, for use by another command. changes: fields of ``Option`` that differ there."""
    known = (*declared(RunSettings), *declared(RunArguments), *declared(Display))
    return replace(next(each for each in known if each.name == name), **changes)


def reused(name: str, **changes: Any) -> Any:
    """A dataclass field that is the setting of this name, for the record of another command. changes: as in ``named``."""
    found = named(name, **changes)
    return field(default=found.default, metadata={"option": found})
