"""Ports that hold the computed weight of a layer, where the reference computes it by a weight norm or another parametrization.

The entry ``folded`` of names.toml says for which layers a port does so. It is given the reference's computed weights in place of
what they are computed from, and must return these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..errors import Failed, nearest
from ..weights import digest, normal_form, npz
from ..weights.canonical import Array, Changed
from .build import Prepared

MOST_NAMED = 3  # names in a message


@dataclass(frozen=True)
class Folding:
    """The computed weights that a port holds.

    names: of these weights; () for a port that holds none.
    prepared: the weights of the run. table: the name of the port's table in names.toml, and of its model file.
    """

    names: tuple[str, ...]
    prepared: Prepared
    table: str = ""

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
        """The names of what these weights are computed from."""
        return {part for name in self.names for part in self.prepared.computed[name]}

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes of the weights of the port."""
        kept = {name: shape for name, shape in self.prepared.shapes.items() if name not in self.parts}
        return {**kept, **{name: shape for name, (shape, _) in self._values().items()}}

    def arrays(self, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
        """The weights of the port. arrays: those of the reference."""
        return Changed(arrays, {name: name for name in arrays if name not in self.parts}, self._values())

    def _values(self) -> dict[str, tuple[tuple[int, ...], Callable[[], Array]]]:
        """The shape of each computed weight, and the function that reads it."""
        if not self.names or self.prepared.computed_weights is None:
            return {}
        values = npz.OnDisk(self.prepared.computed_weights)
        return {name: (values.shape(name), partial(values.__getitem__, name)) for name in self.names}

    def file(self, weights: Path, folder: Path) -> Path:
        """The file of the port's weights. weights: of the reference's. folder: where a file of others is written."""
        if not self.names:
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


def layer_of(weight: str) -> str:
    """The layer of a weight; the weight itself when it belongs to the model."""
    return weight.rpartition(".")[0] or weight
