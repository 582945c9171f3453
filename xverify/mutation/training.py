"""Mutations of training code: known mistakes are made in a port's training, and the training-parity checks must name them.

The reference and the port are two workers of torch with the same weights. Every mistake is made with an
optimizer for which it has an effect.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from ..progress import Listener
from ..reference.build import build_question
from ..reference.request import resolve
from ..results.records import Check
from ..results.verdicts import Verdict
from ..training.parity import Learner, TrainingParity
from ..worker import messages
from ..worker.messages_training import PlantMistake, PrepareTraining
from ..worker.process import Worker
from ..workload.optimizers import Optimizer
from ..workload.options import RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .mistakes import MISTAKES, Mistake
from .records import Score, Trial
from .workers import reference_and_port

SEEDS = 2  # of clean runs, each with every optimizer that a mistake is made with


@dataclass(frozen=True)
class _Round:
    """What was found with one seed and one optimizer.

    alarm: what is wrongly found without a mistake; None when all checks pass.
    found: mistake -> the checks of the port with it.
    """

    alarm: str | None
    found: dict[Mistake, list[Check]]


def mutate_training(
    model: str, *, batch: int | None = None, seed: int = 0, threads: int | None = None, listener: Listener | None = None
) -> Score:
    """Make every mistake that the model can have. ``Score.located`` counts the mistakes that break the right check first."""
    listener = listener or Listener()
    request, folder = resolve(
        model, ["torch:eager"], RunSettings(task="train", batch=batch, seed=seed, cases=2, threads=threads)
    )
    rounds = [_round(each, planted, folder, listener) for each, planted in _requests(request)]
    found = {mistake: checks for each in rounds for mistake, checks in each.found.items()}
    trials = [_trial(folder.name, mistake, found[mistake]) for mistake in MISTAKES if mistake in found]
    alarms = [each.alarm for each in rounds if each.alarm is not None]
    return Score(folder.name, tuple(trials), len(rounds), tuple(alarms))


def _requests(request: Request) -> Iterator[tuple[Request, list[Mistake]]]:
    """A request for every seed and optimizer, and the mistakes to make. All mistakes are made with the first seed."""
    for other in range(SEEDS):
        for settings in dict.fromkeys(mistake.asked for mistake in MISTAKES):
            planted = [mistake for mistake in MISTAKES if mistake.asked == settings] if other == 0 else []
            yield replace(request, optimizer=settings, seed=request.seed + other), planted


def _round(request: Request, planted: list[Mistake], folder: ModelFolder, listener: Listener) -> _Round:
    """Judge a port without a mistake, and then with each of these mistakes."""
    settings = request.optimizer
    assert settings is not None
    conditions = f"seed {request.seed}, {settings.says()}"
    with reference_and_port(request, folder, listener) as (process, prepared, port):
        parity = TrainingParity(process, prepared)
        parity.prepare(curve=False)
        listener.phase("mutate", f"a clean run: {conditions}")
        checks = _judge_training(parity, port, folder, settings, "")
        found = {}
        for mistake in planted:
            if mistake.norms and not any(check.name == "statistics" for check in checks):
                continue  # the model has no batch norm
            listener.phase("mutate", f"{mistake.kind}, with {settings.says()}")
            found[mistake] = _judge_training(parity, port, folder, mistake.made or settings, mistake.plant)
    broken = next((check for check in checks if check.verdict not in (Verdict.EQUAL, Verdict.UNTESTED)), None)
    alarm = f"{conditions}: {broken.name}: {broken.verdict}, {broken.says}" if broken else None
    return _Round(alarm, found)


def _judge_training(
    parity: TrainingParity, port: Worker, folder: ModelFolder, settings: Optimizer, plant: str
) -> list[Check]:
    """Build the port again, and run the checks of whole training steps.

    settings: the optimizer settings of the port.
    plant: the change of the port to make (see worker.mistakes); "" for none.
    """
    port.ask(build_question(folder, "torch", None))
    port.ask(messages.Load(path=str(parity.prepared.weights)))
    training = str(parity.prepared.training)
    port.ask(PrepareTraining(inputs=training, mode="eager", optimizer=settings, match=False))
    if plant:
        port.ask(PlantMistake(plant=plant))
    return parity.judge_steps(Learner("torch:eager", port, replace(settings, variants=()), (), {}, ()))


def _trial(model: str, mistake: Mistake, checks: list[Check]) -> Trial:
    broken = [check for check in checks if check.verdict in (Verdict.DRIFT, Verdict.DIFFERENT, Verdict.INVALID)]
    understood = [check for check in broken if mistake.says in f"{check.difference} {check.says}"]
    told = next(iter(understood or broken), None)
    return Trial(
        model=model,
        kind=mistake.kind,
        layer=mistake.check,
        says=mistake.kind,
        visible=float("inf"),
        verdict=Verdict.worst((Verdict(check.verdict) for check in broken), default=Verdict.EQUAL),
        found=broken[0].name if broken else None,
        explained=mistake.kind if understood else None,
        explanation=f"{told.name}, step {told.step}: {told.difference} {told.says}" if told else "",
    )
