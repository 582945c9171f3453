"""The work of a reference's worker with a user's own training step. It needs torch."""

from __future__ import annotations

import math
import traceback
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..framework.generators import Draws
from ..framework.own_mistake import OwnMistake
from ..framework.own_state import StateReader
from ..framework.own_step import OwnStep, Step, optimizers_by_name
from ..framework.structures import Natives
from ..messages import own_step as messages
from ..messages.own_step import OwnStepExplained, OwnTruthComputed
from ..weights import npz
from ..weights.canonical import Arrays
from .handlers import Group
from .own_step import named_batch
from .state import State
from .training import labelled_batches

if TYPE_CHECKING:
    from ..explain.own_mistake import Port
    from ..float64.own_precision import OwnPrecision
    from ..float64.own_step import Change, Code, Steps


class OwnStepReference(Group):
    """Handlers of requests to the reference of a run whose model files make their own step.

    precision: what its code has shown in ``train``.
    """

    def __init__(self, state: State) -> None:
        super().__init__(state)
        self.precision: OwnPrecision | None = None

    def train(self, request: messages.TrainOwnSteps) -> tuple[str, ...]:
        """Train in float32; see float64.own_step.Steps."""
        steps = self._steps([request.weights], request.inputs, request.most)
        files = steps.trajectory(Path(request.folder), request.steps, request.updates)
        self.precision = steps.precision
        return tuple(files)

    def truth(self, request: messages.ComputeOwnTruth) -> OwnTruthComputed:
        """Make the steps in float64, and measure their noise; see float64.own_truth.truths."""
        from ..float64 import own_truth

        steps = self._steps(request.weights, request.inputs, lowered=request.lowered, parts=request.parts)
        folder = Path(request.folder)
        repeats = 1 if request.once else own_truth.REPEATS
        draws = Draws(self.state.source.folder)
        found, random = own_truth.truths(steps, folder, request.seed, repeats, draws, request.times)
        return OwnTruthComputed(tuple(found), random, self._drawn(steps, draws) if random else "")

    def _drawn(self, steps: Steps, draws: Draws) -> str:
        """The sentence about what the steps draw, which is found in one more run of them."""
        try:
            for _ in steps.drive(inside=partial(self.state.framework.watched_draws, draws.note)):
                pass
        except Exception:  # the code may not run while its calls are watched
            traceback.print_exc()
        return draws.says()

    def write_variants(self, request: messages.WriteOwnVariants) -> tuple[str, ...]:
        """Make the steps with changed optimizers."""
        from ..explain import own_variants
        from ..float64 import own_truth

        steps = self._steps(request.weights, request.inputs, lowered=request.lowered, parts=request.parts)
        folder = Path(request.folder)
        repeats = 1 if request.once else own_truth.REPEATS
        given = self._given(steps, request)
        return own_variants.write_variants(steps, folder, request.seed, repeats, request.variants, given)

    def explain(self, request: messages.ExplainOwnStep) -> OwnStepExplained:
        """Find a known mistake; see explain.own_search."""
        from ..explain import own_mistakes, own_search

        steps = self._steps(request.weights, request.inputs, parts=request.parts)
        mistakes = own_mistakes.PLACES[request.place]
        given = self._given(steps, request)
        ports = [self._port(request, request.exact, request.variants, given)]
        if request.variants:
            ports.append(self._port(request, request.plain, (), given))
        found = own_search.explain(steps, ports, mistakes)
        return OwnStepExplained(found.says, found.difference, found.ended)

    def _port(self, request: messages.ExplainOwnStep, exact: str, variants: tuple[str, ...], given: Change) -> Port:
        """What the port's steps did beside the exact ones with these variants. exact: the folder of their arrays."""
        from ..explain.own_mistake import Port
        from ..float64 import own_truth

        folder, numbers = Path(exact), range(len(request.weights))
        taken = npz.OnDisk(*(messages.step_file(request.taken, number) for number in numbers))
        noise = [npz.OnDisk(own_truth.noise_file(folder, number)) for number in numbers]
        return Port(
            found=[{name: taken[f"{number}/weight/{name}"] for name in request.names} for number in numbers],
            exact=[npz.OnDisk(own_truth.exact_file(folder, number)) for number in numbers],
            floors=[{name: own_truth.rms(each[f"noise/change/{name}"]) for name in request.names} for each in noise],
            losses=request.losses,
            exact_losses=request.exact_losses,
            loss_floors=request.loss_floors,
            first=request.first,
            blamed=request.blamed,
            optimizer=request.optimizer,
            factor=math.nan if request.factor is None else request.factor,
            variants=variants,
            given=given,
        )

    def _given(self, steps: Steps, request: messages.WriteOwnVariants | messages.ExplainOwnStep) -> Change:
        """The change that gives the optimizers a port's gradients, where the request asks for it."""
        from ..explain.own_given import given_gradients
        from ..explain.own_updates import unchanged

        if not request.given:
            return unchanged
        watched = npz.OnDisk(*(messages.step_file(request.given, number) for number in range(len(request.weights))))
        return given_gradients(steps.code.names, watched, request.fused_parameters)

    def mistakes(self, request: messages.ListOwnMistakes) -> tuple[tuple[OwnMistake, float], ...]:
        """List the mistakes that a mutation can make; see explain.own_planted."""
        from ..explain import own_planted

        return tuple(own_planted.mistakes(self._steps(request.weights, request.inputs), Path(request.exact)))

    def _steps(
        self, files: Sequence[str], inputs: str, count: int = 0, lowered: str = "", parts: Sequence[int] = ()
    ) -> Steps:
        """The reference's steps. files: the weights before each step. inputs: the file of the batches. count: 0: one a file.

        lowered, parts: see ComputeOwnTruth.
        """
        from ..float64.own_precision import OwnPrecision
        from ..float64.own_step import Steps

        batches = [named_batch(self.state, batch) for batch in labelled_batches(self.state, inputs)]
        chosen = [batches[step % len(batches)] for step in range(count or len(files))]
        steps = Steps(self._code(parts), files, chosen, self.precision or OwnPrecision())
        return steps.lowered(lowered) if lowered else steps

    def _code(self, parts: Sequence[int]) -> Code:
        """The reference's model and step. parts: see ComputeOwnTruth."""
        from ..float64.norms_in_parts import divide_norms
        from ..float64.own_step import Code

        state, framework = self.state, self.state.framework

        def build(float64: bool) -> Any:
            model = framework.build(state.source, state.options, float64=float64)
            framework.disable_dropout(model)
            framework.train(model)
            if parts:
                divide_norms(model, parts)
            return model

        def start(model: Any) -> tuple[Step, Natives, StateReader]:
            functions = OwnStep.of(state.source)
            made, bound = functions.start(model)
            step = framework.own_step(bound, "eager")

            def checked(batch: Mapping[str, Any]) -> Any:
                losses = step(dict(batch))
                functions.check(losses)
                return losses

            reader = StateReader(framework, model, made, state.named)
            return checked, optimizers_by_name(made, model, framework.is_optimizer), reader

        def read(model: Any) -> Arrays:
            return {state.canonical_names[name]: array for name, array in framework.save_weights(model).items()}

        def load(model: Any, file: str) -> None:
            state.write_weights(model, npz.OnDisk(Path(file)))

        return Code(build, start, load, read, framework.watched_updates, state.canonical_names)
