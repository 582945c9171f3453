"""Mutations of a training step of the model files: mistakes are made in it from outside, and its checks must name them.

The mistakes are those that the step's optimizers, gradients and clipping allow; ``explain.own_planted`` lists them. Every mistake
is made in the port alone: see ``own_mistake`` of an adapter.
"""

from __future__ import annotations

from dataclasses import replace

from .. import messages
from ..errors import Failed, Unsupported
from ..messages.own_step import ListOwnMistakes, PlantOwnMistake, PrepareOwnStep
from ..messages.training import PrepareTraining
from ..processes.worker import Worker
from ..progress import Listener
from ..reference.build import Prepared, build_question
from ..results.records import Check
from ..training.compared import Coverage
from ..training.learner import Learner
from ..training.own_parity import OwnStepParity
from ..training.own_state import StateCoverage
from ..training.step import Distance
from ..workload.request import Request
from ..workload.spec import ModelFolder
from .records import Score, Trial
from .trials import alarm_of, trial_of
from .workers import Subject, reference_and_port

SEEDS = 2  # of clean runs


def mutate_own_step(request: Request, folder: ModelFolder, port: Subject, listener: Listener) -> Score:
    """Make every mistake that changes the step. All mistakes are made with the first seed.

    The clean run with another seed also has another batch, and one thread. Raises Failed where the reference's step is random.
    """
    other = replace(request, batch=request.batch // 4 * 2 or 4, threads=1, seed=request.seed + 1)
    trials, alarms, unplanted = list[Trial](), list[str](), list[str]()
    for number, each in enumerate((request, other)):
        conditions = f"seed {each.seed}, batch {each.batch}, {each.threads} threads"
        with reference_and_port(each, folder, port, listener) as (process, prepared, worker):
            parity = OwnStepParity(process, prepared)
            parity.prepare(curve=False)
            if parity.random:
                raise Failed(parity.random)
            learner = _learner(each, folder, port, worker, prepared)
            listener.phase("mutate", f"a clean run: {conditions}")
            clean = _judged(parity, learner)
            # Known differences of the framework, such as eps-hat, are there without a mistake, too.
            known = {check.difference for check in clean if check.difference}
            alarm = alarm_of([check for check in clean if not check.difference])
            alarms += [f"{conditions}: {alarm}"] if alarm else []
            if number == 0:
                _trials(parity, learner, folder.name, known, trials, unplanted)
    return Score(folder.name, tuple(trials), SEEDS, tuple(alarms), unplanted=tuple(unplanted), subject=port.label)


def _trials(
    parity: OwnStepParity, learner: Learner, model: str, known: set[str], trials: list[Trial], unplanted: list[str]
) -> None:
    """Make the mistakes. known: names of differences that are no mistake. trials, unplanted: get what comes of each."""
    process = parity.process
    process.phase("how much each mistake changes its own steps")
    question = ListOwnMistakes(parity.files, str(parity.prepared.training), str(parity.space))
    for mistake, visible in process.worker.ask(question):
        process.listener.phase("mutate", mistake.kind)
        try:
            learner.worker.ask(PlantOwnMistake(mistake))
        except Unsupported as error:
            unplanted.append(f"{mistake.kind}: {error}")
            continue
        checks = [check for check in _judged(parity, learner) if not check.difference or check.difference not in known]
        trials.append(trial_of(model, mistake, checks, visible))
    learner.worker.ask(PlantOwnMistake(None))


def _learner(request: Request, folder: ModelFolder, port: Subject, worker: Worker, prepared: Prepared) -> Learner:
    """Build the port with the reference's weights, and prepare its step."""
    assert request.optimizer is not None
    built = worker.ask(build_question(folder, port.adapter.reads(), None, port.mode, trains=True, batch=request.batch))
    worker.ask(messages.Load(path=str(prepared.weights)))
    training = PrepareTraining(inputs=str(prepared.training), mode=port.mode, optimizer=request.optimizer, match=False)
    worker.ask(PrepareOwnStep(training))
    return Learner(port.label, worker, request.optimizer, (), built.fused_parameters, ())


def _judged(parity: OwnStepParity, learner: Learner) -> list[Check]:
    """The checks of all steps of the port, up to the first that fails."""
    return parity.judge_steps(learner, parity.observe(learner), Coverage(), Distance(), StateCoverage())
