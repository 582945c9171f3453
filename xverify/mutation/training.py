"""Mutations of training code: known mistakes are made in a port's training, and the training-parity checks must name them.

The reference and the port have the same weights. Every mistake is made with an optimizer for which it has an effect, in the way
that ``mistakes.made`` says. A port of another framework than torch computes torch's formulas, as with ``--match-optimizer``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from .. import messages
from ..errors import Failed, Unsupported, UsageError, XverifyError
from ..framework.adapter import Framework
from ..messages.training import PlantMistake, PrepareTraining
from ..processes.worker import Worker
from ..progress import Listener
from ..reference.build import build_question
from ..reference.folding import Folding, not_trained
from ..results.records import Check
from ..training.learner import Learner
from ..training.parity import TrainingParity
from ..workload.losses import Objective
from ..workload.objective import has_own_step
from ..workload.optimizers import Optimizer, optimizer
from ..workload.options import RunSettings
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .mistakes import MISTAKES, Made, Mistake, made
from .own_training import mutate_own_step
from .precision_mistakes import PRECISION_MISTAKES
from .recipe_mistakes import recipe_mistakes
from .records import Score, Trial
from .trials import alarm_of, trial_of
from .workers import TORCH, Subject, reference_and_port, request_for

SEEDS = 2  # of clean runs, each with every optimizer that a mistake is made with
OF_LOSSES = optimizer("adam")  # with which mistakes in the loss are made

Planted = tuple[Mistake, Made]  # a mistake, and how the port makes it


@dataclass(frozen=True)
class _Round:
    """What was found with one seed and one optimizer.

    alarm: what is wrongly found without a mistake; None when all checks pass.
    trials: one for each planted mistake. unplanted: a sentence for each that the port cannot make.
    """

    alarm: str | None
    trials: list[Trial]
    unplanted: list[str]


def mutate_training(
    model: str,
    *,
    subject: str = TORCH,
    batch: int | None = None,
    seed: int = 0,
    threads: int | None = None,
    listener: Listener | None = None,
) -> Score:
    """Make every mistake that the port can make. ``Score.located`` counts the mistakes that break the right check first.

    subject: the framework of the port, and its mode.
    """
    listener, port = listener or Listener(), Subject.parse(subject)
    request, folder = request_for(
        model, port, RunSettings(task="train", batch=batch, seed=seed, cases=2, threads=threads)
    )
    if has_own_step(folder):
        return mutate_own_step(request, folder, port, listener)
    rounds, unplanted, refused = list[_Round](), list[str](), list[XverifyError]()
    for each, settings, planted in _requests(request, folder, port):
        try:
            rounds.append(_round(each, settings, planted, folder, port, listener))
        except (UsageError, Unsupported) as error:  # for example, no parameter is a bias
            refused.append(error)
            unplanted += [f"{mistake.kind}: {error}" for mistake, _ in planted]
    if not rounds:
        raise refused[0]
    trials = [trial for each in rounds for trial in each.trials]
    unplanted += [text for each in rounds for text in each.unplanted]
    alarms = [each.alarm for each in rounds if each.alarm is not None]
    return Score(folder.name, tuple(trials), len(rounds), tuple(alarms), unplanted=tuple(unplanted), subject=port.label)


def _requests(
    request: Request, folder: ModelFolder, subject: Subject
) -> Iterator[tuple[Request, Optimizer, list[Planted]]]:
    """A request for every seed and optimizer, this optimizer, and the mistakes to make. All mistakes are made with the first seed.

    Clean runs with another seed also have another batch, and one thread.
    """
    adapter = subject.adapter
    known = (*MISTAKES, *recipe_mistakes(folder.spec.training))
    known += tuple(each for each in PRECISION_MISTAKES if each.asked.recipe.precision in adapter.mixed)
    possible = [each for each in known if adapter.takes_recipe or not (each.asked.recipe or each.asked.recipe.amsgrad)]
    mistakes = [(each, how) for each in possible if (how := made(each, subject.trains_in_torch)) is not None]
    other = replace(request, batch=request.batch // 4 * 2 or 4, threads=1)
    for seed in range(SEEDS):
        for settings in dict.fromkeys((*(mistake.asked for mistake in possible), OF_LOSSES)):
            planted = [each for each in mistakes if each[0].asked == settings] if seed == 0 else []
            yield replace(other if seed else request, optimizer=settings, seed=request.seed + seed), settings, planted


def _round(
    request: Request,
    settings: Optimizer,
    planted: list[Planted],
    folder: ModelFolder,
    subject: Subject,
    listener: Listener,
) -> _Round:
    """Judge a port without a mistake, and then with each of these mistakes. settings: the optimizer of the request."""
    settings.recipe.check_batch(request.batch)
    conditions = f"seed {request.seed}, batch {request.batch}, {request.threads} threads, {settings.says()}"
    with reference_and_port(request, folder, subject, listener) as (process, prepared, port):
        parity = TrainingParity(process, prepared)
        parity.prepare(curve=False)
        listener.phase("mutate", f"a clean run: {conditions}")
        right = Made(settings, not subject.trains_in_torch)
        checks = _judge_training(parity, port, folder, subject, right)
        if settings == OF_LOSSES and planted:
            planted = [*planted, *((each, right) for each in _loss_mistakes(parity, subject))]
        trials, unplanted = list[Trial](), list[str]()
        for mistake, how in planted:
            if mistake.norms and not any(check.name == "statistics" for check in checks):
                continue  # the model has no batch norm
            listener.phase("mutate", f"{mistake.kind}, with {settings.says()}")
            try:
                found = _judge_training(parity, port, folder, subject, how, mistake.objective)
            except (Unsupported, Failed) as error:  # for example, the mistake freezes the only layer
                unplanted.append(f"{mistake.kind}: {error}")
                continue
            visible = parity.visible(mistake.share) if mistake.share else math.inf
            trials.append(trial_of(folder.name, mistake, found, visible))
    alarm = alarm_of(checks)
    return _Round(f"{conditions}: {alarm}" if alarm else None, trials, unplanted)


def _loss_mistakes(parity: TrainingParity, subject: Subject) -> list[Mistake]:
    """The mistakes in the loss, one of each kind. [] where the port computes no loss by its name, or the loss is another one."""
    adapter = subject.adapter
    if adapter.operations is Framework.operations and adapter.loss_value is Framework.loss_value:
        return []
    first = dict[str, Mistake]()
    for wrong in parity.loss_mistakes():
        first.setdefault(wrong.kind, Mistake(wrong.kind, "loss", wrong.says, OF_LOSSES, objective=wrong.objective))
    return list(first.values())


def _judge_training(
    parity: TrainingParity,
    port: Worker,
    folder: ModelFolder,
    subject: Subject,
    how: Made,
    objective: Objective | None = None,
) -> list[Check]:
    """Build the port again, and run the checks of whole training steps.

    how: how the port makes a mistake, or none. objective: a loss with a mistake; None: that of the folder.
    """
    question = build_question(
        folder, subject.adapter.reads(), None, subject.mode, trains=True, batch=parity.request.batch
    )
    folding = Folding.of_port(folder, subject.adapter.reads(), parity.prepared, parity.request.reference)
    if why := not_trained(folding):
        raise Unsupported(why)
    question = folding.question(replace(question, precision=how.settings.recipe.precision), folder)
    built = port.ask(replace(question, objective=objective) if objective else question)
    port.ask(messages.Load(path=str(parity.prepared.weights)))
    training = PrepareTraining(
        inputs=str(parity.prepared.training),
        mode=subject.mode,
        optimizer=how.settings,
        match=how.match,
        plant=how.in_model,
    )
    port.ask(training)
    if how.in_training:
        port.ask(PlantMistake(plant=how.in_training))
    settings = replace(how.settings, variants=())
    return parity.judge_steps(Learner(subject.label, port, settings, (), built.fused_parameters, ()))
