"""The work of a reference's worker with a user's own training step. It needs torch."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..framework.own_step import OwnStep, Step, optimizers_by_name
from ..framework.structures import Natives
from ..messages import own_step as messages
from ..messages.own_step import OwnTruthComputed
from ..weights import npz
from ..weights.canonical import Arrays
from .own_step import named_batch
from .state import State
from .training import labelled_batches

if TYPE_CHECKING:
    from ..replay.own_step import Code


class OwnStepReference:
    """Handlers of requests to the reference of a run whose model files make their own step."""

    def __init__(self, state: State) -> None:
        self.state = state

    def train(self, request: messages.TrainOwnSteps) -> tuple[str, ...]:
        """Train in float32; see replay.own_step.trajectory."""
        from ..replay import own_step

        batches = self._batches(request.inputs, request.steps)
        files = own_step.trajectory(self._code(), request.weights, batches, Path(request.folder))
        return tuple(files)

    def truth(self, request: messages.ComputeOwnTruth) -> OwnTruthComputed:
        """Make the steps in float64, and measure their noise; see replay.own_step.truths."""
        from ..replay import own_step

        batches = self._batches(request.inputs, len(request.weights))
        repeats = 1 if request.once else own_step.REPEATS
        found, random = own_step.truths(
            self._code(), request.weights, batches, Path(request.folder), request.seed, repeats, request.times
        )
        return OwnTruthComputed(tuple(found), random)

    def write_variant(self, request: messages.WriteOwnVariant) -> bool:
        """Make the steps with a known variant of the optimizers."""
        from ..replay import own_step
        from ..replay.explain import own_mistakes

        batches = self._batches(request.inputs, len(request.weights))
        repeats = 1 if request.once else own_step.REPEATS
        return own_mistakes.write_variant(
            self._code(), request.weights, batches, Path(request.folder), request.seed, repeats
        )

    def explain(self, request: messages.ExplainOwnStep) -> tuple[str, str]:
        """Find a known mistake; see replay.own_mistakes."""
        from ..replay import own_step
        from ..replay.explain import own_mistakes

        last = len(request.weights) - 1
        taken, exact = npz.OnDisk(Path(request.taken)), npz.OnDisk(own_step.exact_file(Path(request.exact), last))
        says, difference = own_mistakes.explain(
            self._code(),
            request.weights,
            self._batches(request.inputs, len(request.weights)),
            {name: taken[f"{last}/weight/{name}"] for name in request.floors},
            {name: exact[f"after/{name}"] for name in request.floors},
            request.floors,
            request.place,
            request.optimizer,
            request.variant,
        )
        return says, difference

    def _batches(self, path: str, count: int) -> list[Natives]:
        """The batch of each step."""
        batches = [named_batch(self.state, batch) for batch in labelled_batches(self.state, path)]
        return [batches[step % len(batches)] for step in range(count)]

    def _code(self) -> Code:
        """The reference's model and step."""
        from ..replay.own_step import Code

        state, framework = self.state, self.state.framework

        def build(float64: bool) -> Any:
            model = framework.build(state.source, state.options, float64=float64)
            framework.disable_dropout(model)
            framework.train(model)
            return model

        def start(model: Any) -> tuple[Step, Natives]:
            functions = OwnStep.of(framework, state.source)
            made, step = functions.start(model)

            def checked(batch: Mapping[str, Any]) -> Any:
                losses = step(dict(batch))
                functions.check(losses)
                return losses

            return checked, optimizers_by_name(made, model, framework.is_optimizer)

        def read(model: Any) -> Arrays:
            return {state.canonical_names[name]: array for name, array in framework.save_weights(model).items()}

        def load(model: Any, file: str) -> None:
            state.write_weights(model, npz.OnDisk(Path(file)))

        return Code(build, start, load, read, framework.watched_updates, state.canonical_names)
