"""Ports that hold other values than the reference: the computed weight of a layer with a weight norm, a norm's weight plus one, ….

The entries ``folded``, ``absent`` and ``stored`` of names.toml say for which weights a port does so. It is given these values in
place of the reference's, and must return them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..errors import Failed, WeightsError, nearest
from ..messages import Build
from ..weights import digest, normal_form, npz
from ..weights.arrangement import read_table
from ..weights.canonical import Array, Changed
from ..weights.changes import Change, changes
from ..workload.spec import ModelFolder
from .build import Prepared

MOST_NAMED = 3  # names in a message


@dataclass(frozen=True)
class Folding:
    """The weights of which a port holds other values than the reference, or none.

    names: of computed weights that it holds in place of what they are computed from.
    prepared: the weights of the run. table: the name of the port's table in names.toml, and of its model file.
    absent: names of weights that it has no place for. changes: the weights that it holds with other values.
    """

    names: tuple[str, ...]
    prepared: Prepared
    table: str = ""
    absent: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.names or self.absent or self.changes)

    @classmethod
    def of_port(cls, folder: ModelFolder, table: str, prepared: Prepared, reference: str) -> Folding:
        """The folding of a port. reference: the framework of the reference.

        Raises Failed for an entry of names.toml that names no weight of the reference.
        """
        # Only torch computes weights from others, so that with another reference nothing is computed.
        found = cls.of(folder.folded(table) if reference == "torch" else (), prepared, table)
        absent: dict[str, None] = {}
        for entry in folder.absent(table):
            named = [name for name in prepared.shapes if f"{name}.".startswith(f"{entry}.")]
            if not named:
                raise Failed(
                    f"names.toml: [{table}] lists {entry!r} as absent, and it is no weight and no layer with weights of the "
                    f"reference{nearest(entry, prepared.shapes)}"
                )
            absent.update(dict.fromkeys(named))
        place = f"names.toml: [{table}.stored]"
        try:
            made = changes(read_table(folder.stored(table), place), prepared.shapes, place)
        except WeightsError as error:
            raise Failed(str(error)) from None
        return replace(found, absent=tuple(absent), changes=tuple(made))

    @classmethod
    def of(cls, entries: Sequence[str], prepared: Prepared, table: str) -> Folding:
        """The folding that the entries of names.toml declare: each is a layer, or a module that holds layers.

        Raises Failed for an entry in which the reference computes no weight.
        """
        names: dict[str, None] = {}
        for entry in entries:
            found = [name for name in prepared.computed if f"{name}.".startswith(f"{entry}.")]
            if not found:
                raise Failed(
                    f"names.toml: [{table}] lists {entry!r} as folded, and the reference computes no weight of it"
                    f"{nearest(entry, map(layer_of, prepared.computed))}"
                )
            names.update(dict.fromkeys(found))
        return cls(tuple(names), prepared, table)

    @property
    def parts(self) -> set[str]:
        """The names of the reference's weights that the port does not have."""
        computed = {part for name in self.names for part in self.prepared.computed[name]}
        return computed.union(self.absent, *(each.uses for each in self.changes))

    def question(self, question: Build, folder: ModelFolder) -> Build:
        """The request to build the port, with the weights that it must have and how it stores them."""
        return replace(question, expected=self.shapes(), stored=folder.stored(self.table))

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights of the port."""
        kept = {name: shape for name, shape in self.prepared.shapes.items() if name not in self.parts}
        return {**kept, **{name: shape for name, (shape, _) in self._values({}).items()}}

    def arrays(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """The weights of the port. arrays: those of the reference."""
        values = self._values(arrays)
        kept = {name: name for name in arrays if name not in self.parts and name not in values}
        return Changed(arrays, kept, values)

    def _values(self, arrays: Mapping[str, Array]) -> dict[str, tuple[tuple[int, ...], Callable[[], Array]]]:
        """The shape of each weight with other values, and the function that computes or reads it. arrays: of the reference."""
        found: dict[str, tuple[tuple[int, ...], Callable[[], Array]]] = {
            each.name: (each.shape, partial(each.compute, arrays)) for each in self.changes
        }
        if not self.names or self.prepared.computed_weights is None:
            return found
        values = npz.OnDisk(self.prepared.computed_weights)
        return found | {name: (values.shape(name), partial(values.__getitem__, name)) for name in self.names}

    def file(self, weights: Path, folder: Path) -> Path:
        """The file of the port's weights. weights: of the reference's. folder: where a file of others is written."""
        if not self:
            return weights
        path = folder / "folded-weights.npz"
        npz.save_file(self.arrays(npz.OnDisk(weights)), path)
        return path

    def digest(self) -> str:
        """The digest that the port's weights must have."""
        arrays = self.arrays(npz.OnDisk(self.prepared.weights))
        return digest(normal_form(arrays, self.prepared.fused_parameters))

    def check(self, shapes: Iterable[str]) -> None:
        """Raise Failed for a port with a computed weight that names.toml does not list. shapes: names of the port's weights."""
        own = set(shapes)
        undeclared = [
            name
            for name, parts in self.prepared.computed.items()
            if name in own and name not in self.names and not own & set(parts)
        ]
        if not undeclared:
            return
        first = undeclared[0]
        layers = list(dict.fromkeys(map(layer_of, undeclared)))
        listed = ", ".join(f'"{layer}"' for layer in layers[:MOST_NAMED]) + (", …" if len(layers) > MOST_NAMED else "")
        raise Failed(
            f"{self.table}.py has {first}, which the reference computes from {' and '.join(self.prepared.computed[first])}: "
            f"if the port holds the computed weight, write folded = [{listed}] under [{self.table}] in names.toml; "
            "otherwise give its layer the reference's weights"
        )


def not_trained(folding: Folding) -> str:
    """Why a port with these weights cannot be trained beside the reference, in one sentence; "" where it can."""
    file = f"{folding.table}.py"
    if folding.names:
        return (
            f"{file} holds the computed weight {folding.names[0]}, as names.toml says, and training changes what "
            "the reference computes it from: compare inference, or give the port what the reference computes it from"
        )
    if folding.changes:
        return (
            f"{file} holds {folding.changes[0].says}, as names.toml says, and training changes what the reference has in place of "
            "it: weight decay and rounding act on another number; compare inference"
        )
    trained = next((name for name in folding.absent if name not in folding.prepared.buffers), "")
    if trained:
        return f"{file} has no weight {trained}, as names.toml says, and training changes it in the reference: compare inference"
    return ""


def layer_of(weight: str) -> str:
    """The layer of a weight; the weight itself when it belongs to the model."""
    return weight.rpartition(".")[0] or weight
