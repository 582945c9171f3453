"""The functions ``train_step`` and ``train_state`` of a model file: a whole training step as its author writes it.

def train_state(model):               # optional: what a step needs besides the model, such as its optimizers
    return {"d": Adam(...), "g": Adam(...)}

def train_step(model, state, batch):  # batch: inputs and targets by the names of the spec
    ...
    return {"d_loss": ..., "g_loss": ...}
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar

from ..errors import Failed, Unsupported
from ..weights.canonical import Array
from ..workload.objective import STEP
from .generators import Noted, replaced, watched
from .own_mistake import OwnMistake
from .own_state import Slot, StoredWeight
from .runner import Runner, Source
from .structures import Natives, is_tensor, parts

STATE = "train_state"
SYMBOLIC = ("KerasTensor", "SymbolicTensor", "Tracer")  # ends of the names of classes of tensors that have no values
DEPTH = 3  # containers and objects within a state in which optimizers are looked for

# A step as a function of its batch: name of an input or target -> native tensor. It returns what the user's function returns.
Step = Callable[[Natives], Any]
Optimizers = dict[str, Any]  # by name; each framework has a class of its own


@dataclass(
    frozen=True, eq=False
)  # hashed by identity: compilers keep functions in tables, and a state may be a dictionary
class BoundStep:
    """A step of a model with its state; it is called with a batch. function: ``train_step``. state: what ``train_state`` made."""

    function: Callable[[Any, Any, Natives], Any]
    model: Any
    state: Any

    def __call__(self, batch: Natives) -> Any:
        """Make the step, and return what the user's function returns."""
        return self.function(self.model, self.state, batch)


@dataclass(frozen=True)
class Update:
    """One call of an optimizer.

    optimizer: the object that was called. gradients: native name of a parameter -> the gradient that the optimizer was given, in
        canonical layout.
    """

    optimizer: Any
    gradients: dict[str, Array]


class RunsOwnStep(Runner):
    """A runner that runs a ``train_step`` of its model file. All methods are optional.

    shows_clipped: whether ``watched_updates`` lists gradients after the optimizer's own clipping.
    own_variants: how the formulas of this framework's optimizers and of its clipping differ from torch's: keys of VARIANTS and of
        DIFFERENCES in ``workload``.
    """

    shows_clipped = True
    own_variants: tuple[str, ...] = ()

    def own_step(self, step: Any, mode: str) -> Callable[[Natives], Any]:
        """The user's own step as it runs in this mode. step: a BoundStep. Raises Unsupported when it cannot run there."""
        raise Unsupported(f"{self.name} does not run a train_step of the model file")

    def own_mistake(
        self, mistake: OwnMistake, model: Any, optimizers: Mapping[str, Any]
    ) -> AbstractContextManager[None]:
        """A context in which a mistake is made in the steps of a model. optimizers: of its state, by name.

        Raises Unsupported where it cannot be made.
        """
        raise Unsupported(f"xverify makes no mistakes in a train_step of {self.name}: name torch or tensorflow")

    def train(self, model: Any) -> None:
        """Set a model to training mode, where that is a state of the model."""

    def is_optimizer(self, value: Any) -> bool:
        """Whether a value is an optimizer of this framework."""
        return False

    def watched_updates(self, model: Any) -> AbstractContextManager[list[Any]]:
        """The ``Update`` of every call of an optimizer within the context, as far as it is an eager one."""
        return nullcontext([])

    def watched_draws(self, note: Noted) -> AbstractContextManager[None]:
        """The context in which ``note`` is told the name of every function that draws random numbers, as far as they are known."""
        return watched(note)

    def watched_products(self) -> AbstractContextManager[dict[str, int]]:
        """Precision -> number of eager matrix products and convolutions within the context; {} where they cannot be seen."""
        return nullcontext({})

    # -- what a state holds; see own_state ----------------------------------------------------------------------------

    # Whether training changes the tensors of a model in place, so that those in a state are the model's own.
    changes_in_place: ClassVar[bool] = True

    def is_module(self, value: Any) -> bool:
        """Whether a value is a model or a layer of this framework, of which ``stored_weights`` knows the weights."""
        return False

    def stored_weights(self, module: Any) -> list[StoredWeight]:
        """Every weight and running statistic of a model or layer. Raises WeightsError where one has no canonical form."""
        return []

    def weight_orders(self, model: Any) -> Iterable[Iterable[Any]]:
        """The tensors of a model in the orders in which its users list them, for example as trainable variables."""
        return ()

    def slots(self, value: Any) -> Iterable[Slot] | None:
        """What an optimizer keeps, without its settings such as the learning rate; None for a value that is no optimizer."""
        return None

    def state_array(self, tensor: Any) -> Array:
        """The values of a tensor of a state."""
        return self.to_numpy(tensor, None)


@dataclass(frozen=True)
class OwnStep:
    """The functions of one model file. file: its name. step: ``train_step``. make: ``train_state``; None without one."""

    file: str
    step: Callable[[Any, Any, Natives], Any]
    make: Callable[[Any], Any] | None

    @classmethod
    def of(cls, source: Source) -> OwnStep:
        """The functions of the file from which the model was built. Raises Failed when they cannot be called."""
        file, module = source.title, source.loaded()
        step, make = getattr(module, STEP, None), getattr(module, STATE, None)
        for name, function in ((STEP, step), (STATE, make)):
            if function is not None and not callable(function):
                raise Failed(f"{source.folder / file} defines a name {name} that is no function")
        if step is None:
            raise Failed(f"{source.folder / file} defines no {STEP}(model, state, batch)")
        return cls(file, step, make)

    def start(self, model: Any) -> tuple[Any, BoundStep]:
        """(a new state for this model, the step with it)."""
        state = self.make(model) if self.make else None
        return state, BoundStep(self.step, model, state)

    def check(self, found: Any) -> None:
        """Raise Failed unless a step returned a dictionary of numbers."""
        must = f"{STEP} of {self.file} must return a dictionary of its losses: name -> one number"
        if not isinstance(found, Mapping):
            raise Failed(f"{must}; it returns {_a(found)}")
        if not found:
            raise Failed(f"{must}; it returns an empty one")
        for name, value in found.items():
            if not isinstance(name, str):
                raise Failed(f"{must}; it has {name!r} for a name, which is {_a(name)}")
            if not is_tensor(value) and (isinstance(value, bool) or not isinstance(value, (int, float))):
                raise Failed(f"{must}; {name!r} is {_a(value)}")
            if type(value).__name__.endswith(SYMBOLIC):
                raise Failed(f"{must}; {name!r} is {_a(value)}, which has no value: return the result of a call")
            shape = tuple(int(size) for size in getattr(value, "shape", ()))
            if math.prod(shape) != 1:
                raise Failed(f"{must}; {name!r} is a tensor of shape {shape}: return its mean or its sum")


def numbered(gradients: Sequence[Mapping[str, Array]]) -> dict[str, Array]:
    """The gradients of all updates of a step: "n/name" -> that of the n-th update of a parameter, from 0."""
    found: dict[str, Array] = {}
    counts: dict[str, int] = {}
    for given in gradients:
        for name, array in given.items():
            found[f"{counts.setdefault(name, 0)}/{name}"] = array
            counts[name] += 1
    return found


@contextmanager
def watched_calls(
    kinds: Sequence[Any], method: str, note: Callable[..., Update | None], after: bool = False
) -> Iterator[list[Update]]:
    """The updates of all calls of a method within the context, in the order of the calls.

    kinds: the classes of optimizers that have this method. A call within a call, as of the method of a base class, does not count.
    note: makes an update of the arguments of a call; None: the call does not count.
    after: whether ``note`` is called after the method, and not before it.
    """
    found: list[Update] = []
    inside: list[str] = []

    def watching(function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def watched(*arguments: Any, **more: Any) -> Any:
            if inside:
                return function(*arguments, **more)
            update = None if after else note(*arguments, **more)
            inside.append(method)
            try:
                result = function(*arguments, **more)
            finally:
                inside.clear()
            update = note(*arguments, **more) if after else update
            found.extend([] if update is None else [update])
            return result

        return watched

    with ExitStack() as stack:
        for kind, function in [(kind, getattr(kind, method)) for kind in kinds]:
            stack.enter_context(replaced(kind, method, watching(function)))
        yield found


def _a(value: Any) -> str:
    """The kind of a value, with its article."""
    kind = type(value).__name__
    return "None" if value is None else f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def optimizers_by_name(state: Any, model: Any, is_optimizer: Callable[[Any], bool]) -> Optimizers:
    """The optimizers of a state and of the attributes of a model, by their keys, fields or attributes there.

    An optimizer that is the state itself is called "". The first name of each counts.
    """
    optimizers: Optimizers = {}
    for name, value in _walk("", state, DEPTH, is_optimizer):
        if not any(value is other for other in optimizers.values()):
            optimizers[name] = value
    for name, value in vars(model).items() if hasattr(model, "__dict__") else ():
        if is_optimizer(value) and not any(value is other for other in optimizers.values()):
            optimizers[name] = value
    return optimizers


def _walk(path: str, value: Any, depth: int, wanted: Callable[[Any], bool]) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything wanted in nested containers and in attributes of plain objects."""
    if wanted(value):
        yield path, value
        return
    inner = parts(value)
    if inner is None and hasattr(value, "__dict__") and not callable(value) and not is_tensor(value):
        inner = list(vars(value).items())
    for key, part in inner or () if depth else ():
        yield from _walk(f"{path}.{key}" if path else key, part, depth - 1, wanted)
