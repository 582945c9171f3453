"""What ``train_state`` returned, as named arrays: copies and averages of the model, what optimizers keep, and counters.

A state may hold tensors, numbers, models and optimizers in dictionaries, lists, tuples, dataclasses and attributes of plain
objects. A copy of a weight of the model gets the name and the layout of that weight, whether it stands in a model, in a
dictionary by name, or in a list beside the model's own. The model's own weights are left out.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..errors import WeightsError
from ..verdict.own_step import StateEntry
from ..weights.canonical import Array
from .structures import is_tensor, parts

DEPTH = 12  # containers and objects within a state
# What holds no state, although some of it has attributes. Any value of numpy or Python that is no number is passed over, too.
PASSED = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType, type, partial, str, bytes)
NUMBERS = (bool, int, float, np.generic)

Place = tuple[str, ...]  # the keys, fields, indices and attributes that lead to a value
Tensors = Mapping[int, Any]  # id of a tensor of the model -> the tensor of the state that belongs to it
Read = Callable[[], Array]
Canonical = Callable[[Mapping[str, Array]], Mapping[str, Array]]


@dataclass(frozen=True)
class StoredWeight:
    """A weight of a model as the framework stores it.

    name: native name. parts: (path below the model, tensor) of what it consists of.
    join: the weight in canonical layout, of arrays of the shapes of its parts.
    """

    name: str
    parts: tuple[tuple[str, Any], ...]
    join: Callable[[Sequence[Array]], Array] = lambda arrays: arrays[0]


@dataclass(frozen=True)
class Slot:
    """What an optimizer keeps of one kind.

    kind: torch's name of it where the formula is torch's, such as "exp_avg"; otherwise the framework's own. "step" is the number
        of updates.
    value: a nested structure beside the model's, or a number. of: instead of it, the tensors by the weights that they belong to.
    nested: whether ``value`` may hold further optimizers and their slots; ``kind`` is then its name.
    """

    kind: str
    value: Any = None
    of: Sequence[tuple[Any, Any]] = ()
    nested: bool = False


class Lazy(Mapping[str, Array]):
    """Arrays that are read when they are looked up. read: name -> function that reads the array."""

    def __init__(self, read: Mapping[str, Read]) -> None:
        self.read = read

    def __getitem__(self, name: str) -> Array:
        return self.read[name]()

    def __iter__(self) -> Iterator[str]:
        return iter(self.read)

    def __len__(self) -> int:
        return len(self.read)


@dataclass(frozen=True)
class Held:
    """What a state holds at some time. entries: the names. arrays: path of an entry -> array, read when it is looked up."""

    entries: tuple[StateEntry, ...]
    arrays: Mapping[str, Array]


class StateReader:
    """Reads one state, before the first step and after every step.

    framework: see ``RunsOwnStep``. model: has the weights of the first step. state: what ``train_state`` returned.
    canonical: gives arrays of weights by native name their canonical names.
    """

    def __init__(self, framework: Any, model: Any, state: Any, canonical: Canonical) -> None:
        self.framework, self.state, self.canonical = framework, state, canonical
        self.stored: list[StoredWeight] = framework.stored_weights(model)
        parts = [part for each in self.stored for part in each.parts]
        self.own = {id(tensor) for _, tensor in parts} if framework.changes_in_place else set[int]()
        self.by_path = dict(parts)
        self.orders = [list(order) for order in framework.weight_orders(model)] + [[tensor for _, tensor in parts]]
        self.copies: dict[Place, Any] = {}  # of a weight that stands alone: its place -> the weight's tensor
        self.started = False

    def read(self) -> Held:
        """What the state holds now. The arrays must be read before the next step."""
        self.seen: dict[int, Any] = {}
        entries, arrays = dict[str, StateEntry](), dict[str, Read]()
        for entry, read in self._walk((), self.state):
            if entry.path not in entries:
                entries[entry.path], arrays[entry.path] = entry, read
        self.started = True
        return Held(tuple(entries.values()), Lazy(arrays))

    def _walk(self, place: Place, value: Any) -> Iterator[tuple[StateEntry, Read]]:
        """The entries of everything in a value."""
        if value is None or isinstance(value, PASSED) or len(place) > DEPTH:
            return
        if isinstance(value, NUMBERS):
            yield _entry(place), partial(np.asarray, value)
            return
        if id(value) in self.seen or id(value) in self.own:
            return
        self.seen[id(value)] = value
        slots = self.framework.slots(value)
        if slots is not None:
            for slot in slots:
                yield from self._slot(place, slot)
        elif self.framework.is_module(value):
            inner = _attributes(value)
            if any(self.framework.slots(each) is not None for each in inner.values()):  # a whole state, no network
                for key, part in inner.items():
                    yield from self._walk((*place, key), part)
            else:
                yield from self._module(place, value)
        elif is_tensor(value):
            yield from self._leaf(place, value)
        else:
            yield from self._container(place, value)

    def _container(self, place: Place, value: Any) -> Iterator[tuple[StateEntry, Read]]:
        inner = parts(value)
        if inner is None:
            inner = list(vars(value).items()) if _is_plain(value) else []
        if len(inner) > 1 or len(self.by_path) == 1:
            tensors = self._beside_weights(self._flat(value))
            if tensors:
                yield from self._weights(place, "", tensors)
                return
        for key, part in inner:
            yield from self._walk((*place, key), part)

    def _slot(self, place: Place, slot: Slot) -> Iterator[tuple[StateEntry, Read]]:
        if slot.nested:
            yield from self._walk((*place, slot.kind), slot.value)
        elif slot.of:
            self.seen |= {id(tensor): tensor for _, tensor in slot.of}
            yield from self._weights(place, slot.kind, {id(weight): tensor for weight, tensor in slot.of})
        elif slot.value is not None:
            flat = self._flat(slot.value)
            tensors = self._beside_weights(flat)
            if tensors:
                yield from self._weights(place, slot.kind, tensors)
            elif is_tensor(slot.value) or isinstance(slot.value, NUMBERS):
                yield _entry(place, slot.kind), partial(self._array, slot.value)
            else:
                for path, tensor in flat or ():
                    yield _entry((*place, path), slot.kind), partial(self._array, tensor)

    def _module(self, place: Place, module: Any) -> Iterator[tuple[StateEntry, Read]]:
        """The weights of a module, by canonical name where it has the weights of the model."""
        try:
            stored = self.framework.stored_weights(module)
        except WeightsError as error:
            yield _entry(place, says=f"its weights have no canonical names: {error}"), partial(np.zeros, 0)
            return
        left = [each for each in stored if not all(id(tensor) in self.own for _, tensor in each.parts)]
        read: dict[str, Read] = {}
        prefix = self._prefix(left)
        for each in left:
            read[f"{prefix or ''}{each.name}"] = partial(
                self._joined, each, {id(tensor): tensor for _, tensor in each.parts}
            )
            self.seen |= {id(tensor): tensor for _, tensor in each.parts}
        if prefix is not None:
            yield from self._named(place, "", read)
        else:
            for name, one in read.items():
                yield _entry((*place, name)), one

    def _prefix(self, stored: Sequence[StoredWeight]) -> str | None:
        """What stands before the names of these weights in the model, where they are those of a part of it; None elsewhere."""
        own = {each.name: _shapes(each) for each in self.stored}
        ends = [name.removesuffix(stored[0].name) for name in own if name.endswith(stored[0].name)] if stored else []
        found = [
            prefix
            for prefix in ends
            if not prefix or prefix.endswith(".")
            if all(own.get(prefix + each.name) == _shapes(each) for each in stored)
        ]
        return "" if "" in found else found[0] if len(found) == 1 else None

    def _leaf(self, place: Place, tensor: Any) -> Iterator[tuple[StateEntry, Read]]:
        """A tensor, in the layout of the weight of which it is a copy before the first step."""
        if not self.started:
            weight = self._equal_weight(tensor)
            if weight is not None:
                self.copies[place] = weight
        if place not in self.copies:
            yield _entry(place), partial(self._array, tensor)
            return
        for entry, read in self._weights((), "", {id(self.copies[place]): tensor}):
            yield _entry(place, weight=entry.weight), read

    def _equal_weight(self, tensor: Any) -> Any:
        """The only tensor of the model that has the shape and the values of this one; None where there is none."""
        shape = tuple(tensor.shape)
        alike = [each for each in self.by_path.values() if tuple(each.shape) == shape]
        if not alike or not shape:
            return None
        values = self._array(tensor)
        found = [each for each in alike if np.array_equal(self._array(each), values)]
        return found[0] if len(found) == 1 else None

    def _beside_weights(self, flat: list[tuple[str, Any]] | None) -> Tensors:
        """Tensors by the model's own beside which they stand, by path or in order; {} where they stand beside none."""
        if not flat or all(id(tensor) in self.own for _, tensor in flat):
            return {}
        shapes = [tuple(tensor.shape) for _, tensor in flat]
        orders = [[self.by_path.get(path) for path, _ in flat], *self.orders]
        for order in orders:
            if [None if each is None else tuple(each.shape) for each in order] == shapes:
                self.seen |= {id(tensor): tensor for _, tensor in flat}
                return {id(each): tensor for each, (_, tensor) in zip(order, flat)}
        return {}

    def _flat(self, value: Any) -> list[tuple[str, Any]] | None:
        """(path, tensor) of a nested structure of tensors of numbers that are not whole; None where it holds anything else."""
        if self.framework.slots(value) is not None:
            return None
        inner = None if is_tensor(value) else parts(value)
        if inner is None:
            floating = is_tensor(value) and not any(kind in str(value.dtype) for kind in ("int", "bool", "key<"))
            return [("", value)] if floating else None
        found: list[tuple[str, Any]] = []
        for key, part in inner:
            below = self._flat(part)
            if below is None:
                return None
            found += [(f"{key}.{path}" if path else key, tensor) for path, tensor in below]
        return found

    def _weights(self, place: Place, kind: str, tensors: Tensors) -> Iterator[tuple[StateEntry, Read]]:
        """Tensors beside those of the model, by the names of the weights; others by their number."""
        read: dict[str, Read] = {}
        left = dict(tensors)
        for each in self.stored:
            if all(id(part) in tensors for _, part in each.parts):
                own = {id(part): left.pop(id(part), tensors[id(part)]) for _, part in each.parts}
                read[each.name] = partial(self._joined, each, own)
        yield from self._named(place, kind, read)
        for number, tensor in enumerate(left.values()):
            yield _entry((*place, str(number)), kind), partial(self._array, tensor)

    def _named(self, place: Place, kind: str, read: Mapping[str, Read]) -> Iterator[tuple[StateEntry, Read]]:
        """Arrays by the canonical names of weights. read: native name -> function that reads the array in canonical layout."""
        arrays = self.canonical(Lazy(read))
        for name in arrays:
            yield _entry(place, kind, name), partial(arrays.__getitem__, name)

    def _joined(self, weight: StoredWeight, tensors: Tensors) -> Array:
        return weight.join([self._array(tensors[id(part)]) for _, part in weight.parts])

    def _array(self, value: Any) -> Array:
        """The values of a tensor, in a copy."""
        if isinstance(value, (np.ndarray, *NUMBERS)):
            return np.array(value)
        array: Array = self.framework.state_array(value)
        return np.array(array if array.dtype.kind in "fiub" else array.astype(np.float32))


def _attributes(module: Any) -> dict[str, Any]:
    """The attributes of a module by name; torch keeps some of them in dictionaries."""
    kept = vars(module)
    named = [kept, *(kept.get(key) or {} for key in ("_parameters", "_buffers", "_modules"))]
    return {key: value for each in named for key, value in each.items() if not key.startswith("_")}


def _shapes(weight: StoredWeight) -> list[tuple[int, ...]]:
    return [tuple(tensor.shape) for _, tensor in weight.parts]


def _is_plain(value: Any) -> bool:
    """Whether a value is an object of a user's class or of a library, and no compiled function and nothing of Python's own."""
    module = type(value).__module__
    library = "." in module and callable(value)
    return hasattr(value, "__dict__") and not library and module.partition(".")[0] not in sys.stdlib_module_names


def _entry(place: Place, kind: str = "", weight: str = "", says: str = "") -> StateEntry:
    """The entry of a value at a place."""
    names = [*place[1:], *filter(None, (kind, weight))]
    first = "" if not place else f"[{place[0]}]" if place[0].isdigit() else f'["{place[0]}"]'
    path = ".".join([f"state{first}", *names])
    return StateEntry(path, ".".join([*place[:1], *names]), ".".join(place), kind, weight, says)
