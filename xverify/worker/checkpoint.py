"""The work of a worker that reads and writes the file of a training run, and continues from it."""

from __future__ import annotations

from pathlib import Path

from ..errors import Unsupported, WeightsError
from ..framework.checkpoint import Checkpoint
from ..messages.checkpoint import (
    CheckpointForm,
    CheckpointOpened,
    DescribeCheckpoint,
    GoOn,
    LoadCheckpoint,
    OpenCheckpoint,
    SaveCheckpoint,
)
from ..weights import canonical, npz, readable
from .handlers import Group
from .training import TrainingSession


class CheckpointWork(Group):
    """Handlers of requests about the file of a training run.

    training: the model with its optimizer. opened: the file; ``OpenCheckpoint`` sets it.
    """

    def __init__(self, training: TrainingSession) -> None:
        super().__init__(training.state)
        self.training = training
        self.opened: Checkpoint
        self.title, self.has_weights = "", False

    def open_checkpoint(self, request: OpenCheckpoint) -> CheckpointOpened:
        """Read the file, as far as no optimizer is needed."""
        state = self.state
        if state.arrangement:
            raise Unsupported(
                "the model stores weights otherwise than the reference, and optimizer state is not converted then"
            )
        self.opened, self.title = state.trained.checkpoint(), request.title
        self.opened.path, self.opened.given = Path(request.path), request.given
        self.opened.apart = Path(request.weights) if request.weights else None
        try:
            with readable(self.opened.path):
                found = self.opened.open(self.opened.path, state.model)
            name = str(found.settings.get("name", "") or request.given.get("name", ""))
            known = self.opened.constructors
            if name and name not in known:
                raise WeightsError(
                    f"{request.path}: {state.runner.name} has no {name}; converted are {', '.join(known)}"
                )
            if not found.settings.get("name") and found.kinds and name and name not in found.kinds:
                raise WeightsError(
                    f"{request.path}: it holds the state of {' or '.join(found.kinds)}, and --optimizer is {name}"
                )
        except WeightsError as error:
            return CheckpointOpened({}, refused=self._named(error))
        self.has_weights, names, defaults = found.has_weights, state.canonical_names, {}
        if name and not set(known[name].arguments) <= found.settings.keys():
            defaults = known[name].defaults(self.opened.made(name))
        groups = tuple(
            type(each)(names.get(each.pattern, each.pattern), each.lr, each.weight_decay) for each in found.groups
        )
        return CheckpointOpened(found.settings, groups, found.steps, found.has_weights, found.left, defaults)

    def _named(self, error: WeightsError) -> str:
        """What an error says, with the name of the file that the user gave."""
        return str(error).replace(str(self.opened.path), self.title)

    def load_checkpoint(self, request: LoadCheckpoint) -> str:
        """Load the opened file."""
        state, learner = self.state, self.training.learner
        try:
            own = self.opened.weights()
            if own is not None:
                arrays, known = canonical.to_canonical(own, self.title), state.canonical_names
                state.write_weights(state.model, {known.get(name, name): array for name, array in arrays.items()})
            self.opened.load(state.model, learner, request.steps)
        except WeightsError as error:
            return self._named(error)
        return ""

    def save_checkpoint(self, request: SaveCheckpoint) -> None:
        """Write the file of the present state."""
        self.state.trained.checkpoint().save(Path(request.path), self.state.model, self.training.learner)

    def describe_checkpoint(self, request: DescribeCheckpoint) -> CheckpointForm:
        """Say how the framework's users keep an optimizer."""
        form, name = self.state.trained.checkpoint(), request.optimizer.name
        if name not in form.constructors:
            known = ", ".join(form.constructors)
            raise Unsupported(f"{self.state.runner.name} has no {name}; converted are {known}")
        return CheckpointForm(form.call(request.optimizer), form.suffixes)

    def go_on(self, request: GoOn) -> None:
        """Make the steps."""
        session = self.training
        for batch, path in zip(session.batches, request.paths):
            _, gradients = session.learner.gradients(*batch)
            self.state.runner.wait(session.learner.step(*batch))
            arrays = {f"gradient/{name}": array for name, array in self.state.canonical_arrays(gradients).items()}
            npz.save_file({**arrays, **session.after_step()}, Path(path))
