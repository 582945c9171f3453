"""Trains in one framework, carries weights and optimizer state to another one, and goes on in both.

python suites/resume.py [--only LIST] [--pairs LIST] [--model MODEL]

Every file is written by the framework itself after STEPS steps, as its users do. A cell has the largest residual / noise floor of
three further steps, and how far the weights of both frameworks are apart after them, in noise floors. The exit code is 1 where the
cells that are DIFFERENT are not those that should be.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from xverify.errors import XverifyError
from xverify.framework import discovery
from xverify.messages.checkpoint import SaveCheckpoint
from xverify.messages.training import LossCurve, TrainingState
from xverify.progress import Listener
from xverify.results.figures import shown_ratio
from xverify.results.verdicts import Verdict
from xverify.training.resuming import Asked, Side, convert, worker_of
from xverify.weights import npz
from xverify.workload import datasets
from xverify.workload.optimizers import Optimizer, optimizer
from xverify.workload.recipe import Recipe
from xverify.workload.spec import ModelFolder, find_model

STEPS = 20
SUFFIXES = {"torch": ".pt", "tensorflow": ".weights.h5", "flax": ".msgpack", "jittor": ".pkl", "paddle": ".pdopt"}
OPTIMIZERS: Mapping[str, Optimizer] = {
    "sgd": optimizer("sgd", 0.05),
    "momentum": optimizer("sgd", 0.05, momentum=0.9),
    "nesterov": optimizer("sgd", 0.05, momentum=0.9, nesterov=True),
    "adam": optimizer("adam", 2e-3),
    "amsgrad": optimizer("adam", 2e-3, recipe=Recipe(amsgrad=True)),
    "adamw": optimizer("adamw", 2e-3, weight_decay=0.1),
    "rmsprop": optimizer("rmsprop", 1e-3),
    "rmsprop-momentum": replace(optimizer("rmsprop", 1e-3), momentum=0.9),
    "rmsprop-centered": replace(optimizer("rmsprop", 1e-3), momentum=0.9, centered=True),
    "adagrad": optimizer("adagrad", 1e-2),
    "lion": optimizer("lion", 1e-4, weight_decay=0.1),
    "adafactor": optimizer("adafactor"),
}
PAIRS = (
    "torch:tensorflow,tensorflow:torch,torch:flax,flax:torch,torch:jittor,jittor:torch,tensorflow:flax,flax:tensorflow,"
    "torch:paddle,paddle:torch"
)
# Cells that are rightly DIFFERENT: optax takes Adafactor's means over other axes, or keeps the whole second moment.
DIFFERENT = {("adafactor", pair) for pair in PAIRS.split(",") if "flax" in pair.split(":")}


def trained(folder: ModelFolder, name: str, settings: Optimizer, space: Path) -> Path:
    """A file that this framework wrote after STEPS steps."""
    adapter, place = discovery.load(name), space / name
    place.mkdir(parents=True)
    batches, spec = place / "batches.npz", folder.spec
    npz.save_file(datasets.synthetic(spec, spec.items, 7, STEPS).arrays, batches)
    with worker_of(adapter, place) as worker:
        side = Side(worker, folder, place, batches)
        side.prepare(settings)
        begin = side.state()
        npz.save_file(begin.weights, place / "weights.npz")
        worker.ask(LossCurve(TrainingState(str(place / "weights.npz"), "", 0), STEPS))
        path = place / f"trained{SUFFIXES[name]}"
        worker.ask(SaveCheckpoint(str(path)))
    return path


def told(settings: Optimizer) -> dict[str, float | bool | str]:
    """The settings as a user gives them, of which a file may hold some."""
    names = (
        "name",
        "lr",
        "momentum",
        "nesterov",
        "weight_decay",
        "beta1",
        "beta2",
        "eps",
        "alpha",
        "centered",
        "eps2",
        "threshold",
    )
    return {**{each: getattr(settings, each) for each in (*names, "beta2_decay")}, "amsgrad": settings.recipe.amsgrad}


def cell(folder: ModelFolder, pair: str, settings: Optimizer) -> tuple[str, bool]:
    """What is found for one optimizer and one pair of frameworks, and whether it is DIFFERENT; False where it is refused."""
    source, _, target = pair.partition(":")
    with tempfile.TemporaryDirectory() as space:
        place = Path(space)
        try:
            file = trained(folder, source, settings, place / "trained")
            out = place / f"out{SUFFIXES[target]}"
            (place / "run").mkdir()
            asked = Asked(folder, discovery.load(source), discovery.load(target), file, out, None, None, told(settings))
            found = convert(asked, place / "run", Listener())
        except XverifyError as error:
            return f"– {error}", False
    worst = max(step.own for step in found.steps)
    text = f"{found.verdict.name} {shown_ratio(worst, 2)}, {shown_ratio(found.apart.ratio, 2)}, {found.apart.share:.0e}"
    for each in found.differences:
        text += f"; {each}"
    return text, found.verdict == Verdict.DIFFERENT


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(OPTIMIZERS), help="optimizers")
    parser.add_argument("--pairs", default=PAIRS, help="of frameworks, FROM:TO")
    parser.add_argument("--model", default="mlp")
    args = parser.parse_args(argv)
    folder, wrong = find_model(args.model), False
    pairs = args.pairs.split(",")
    print(f"| optimizer | {' | '.join(pairs)} |\n|{'---|' * (len(pairs) + 1)}", flush=True)
    for name in args.only.split(","):
        cells = [cell(folder, pair, OPTIMIZERS[name]) for pair in pairs]
        print(f"| {name} | {' | '.join(text for text, _ in cells)} |", flush=True)
        for pair, (_, different) in zip(pairs, cells):
            if different != ((name, pair) in DIFFERENT):
                print(f"wrong: {name}, {pair} is {'' if different else 'not '}DIFFERENT", flush=True)
                wrong = True
    return int(wrong)


if __name__ == "__main__":
    raise SystemExit(main())
