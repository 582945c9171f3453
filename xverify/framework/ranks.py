"""What a framework does so that several processes, its ranks, train one model together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..errors import Unsupported
from .runner import Runner, Source

MEETING = "waiting for the other ranks before a clock starts"  # in the error of a rank to which the others do not come
PARALLELIZE = "parallelize"  # function of a model file: (model, mesh) -> the model that a rank trains


@dataclass(frozen=True)
class DropoutDrawn:
    """What a call of a dropout layer drew on a rank.

    name, call: name of the layer, and number of its earlier calls. given, dropped: digests of its input, and of where it drops.
    count: number of values that it drops.
    """

    name: str
    call: int
    given: str
    dropped: str
    count: int


@dataclass(frozen=True)
class DropoutsDrawn:
    """What the dropout layers of a rank drew in a forward pass: when all ranks begin with one seed, and with a seed for each."""

    one_seed: tuple[DropoutDrawn, ...] = ()
    own_seed: tuple[DropoutDrawn, ...] = ()


@dataclass(frozen=True)
class WeightsHeld:
    """The weights of a rank before the first step.

    whole: name -> digest of a weight that every rank has as a whole. changed: name -> whether the part that the rank has of a
        divided weight is no longer that of the weights that it was given; a rank without a value of it leaves it out.
    """

    whole: dict[str, str] = field(default_factory=dict)
    changed: dict[str, bool] = field(default_factory=dict)


class RunsOnRanks(Runner):
    """A runner whose processes can be ranks. All methods are optional.

    plans: the plans that it knows, keys of workload.ranks.PLANS. rank_modes: the modes in which ranks train.
    ranks_are_devices: whether one process has several devices, which are the ranks; otherwise each rank is a process.
    divided_by_compiler: of such devices: whether a step gets the whole batch, and a compiler divides its computation.
    replicas: number of devices of this process that compute a step of their part of the batch each. ``to_native`` then gets a list
        of the parts of an array of the batch.
    """

    plans: ClassVar[tuple[str, ...]] = ()
    rank_modes: ClassVar[tuple[str, ...]] = ()
    ranks_are_devices: ClassVar[bool] = False
    divided_by_compiler: ClassVar[bool] = False
    replicas: int = 1

    def join(
        self, rank: int, count: int, plan: str, meeting: str, seconds: float, shares: Sequence[float] = ()
    ) -> None:
        """Meet the other ranks, and wait until all have come. Arguments: see messages.training.JoinRanks.

        A framework of ``ranks_are_devices`` makes its devices.
        """
        raise Unsupported(f"xverify trains with {self.name} in one process only")

    def meet(self) -> None:
        """Wait until all ranks have come here, before a clock starts. Devices of one process need not."""

    def parallelize(self, model: Any, plan: str, source: Source) -> list[str]:
        """Prepare a model that has its weights for training on all ranks.

        Returns the names of the batch norms that each rank computes from its own part of the batch.
        Raises Failed when the model file has no function for the plan, or returns another model from it.
        """
        raise Unsupported(f"xverify trains with {self.name} in one process only")

    def weights_held(self, model: Any) -> WeightsHeld:
        """What this rank has of the weights after ``parallelize``, by the framework's own names."""
        return WeightsHeld()

    def dropout_rates(self, model: Any) -> Mapping[str, float]:
        """The dropout layers that drop values -> their rates, before dropout is disabled."""
        return {}

    def draw_dropouts(self, model: Any, inputs: tuple[Any, ...], rates: Mapping[str, float]) -> DropoutsDrawn:
        """What dropout layers draw on this rank in two forward passes, after ``parallelize``. rates: see ``dropout_rates``."""
        return DropoutsDrawn()

    def making(self) -> AbstractContextManager[object]:
        """The context in which what is trained is made: a model, and the optimizers of a ``train_step``."""
        return nullcontext()

    def of_rank(self, rank: int) -> AbstractContextManager[object]:
        """A context in which weights, states of optimizers and gradients are those that one of ``replicas`` has."""
        return nullcontext()

    def wrapped(self, model: Any) -> Any:
        """What a training step calls in the place of a model: what ``parallelize`` made of it, or the model itself."""
        return model
