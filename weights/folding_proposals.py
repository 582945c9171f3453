"""Which lines of names.toml would make a port fit that has the reference's batch norms folded into the layers before them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from .layout import Shape
from .stored import unlike

KINDS = ("weight", "bias", "running_mean", "running_var", "num_batches_tracked")
NUMBER = r"(?<![^.])\d+(?![^.])"  # a whole number between dots


@dataclass(frozen=True)
class Host:
    """A layer of the port with a weight and a bias, in place of one of the reference. own, layer: its names in both."""

    own: str
    layer: str
    weight: Shape
    channels: int


@dataclass(frozen=True)
class Folding:
    """What is proposed.

    lines: (layer of the port, right side of its line). theirs, mine: names of the weights that these explain, of the reference and
        of the port. in_order: whether layers of one shape were taken in the order in which both sides have them.
    """

    lines: tuple[tuple[str, Any], ...] = ()
    theirs: frozenset[str] = frozenset()
    mine: frozenset[str] = frozenset()
    in_order: bool = False


@dataclass(frozen=True)
class Sides:
    """The weights of the reference and of the port.

    unexpected, missing: name -> shape, of those without a counterpart in the port, and in the reference.
    fitting: name in the port -> (name in the reference, shape), of the others.
    """

    unexpected: Mapping[str, Shape]
    missing: Mapping[str, Shape]
    fitting: Mapping[str, tuple[str, Shape]] = field(default_factory=dict)

    def hosts(self) -> Iterator[tuple[Host, bool]]:
        """The layers of the port that may have a batch norm in them, and whether only the order tells which each is."""
        biases = {**self.missing, **{own: shape for own, (_, shape) in self.fitting.items()}}
        for own, (name, shape) in self.fitting.items():
            layer, _, kind = own.rpartition(".")
            if kind == "weight" and f"{layer}.bias" in biases:
                yield Host(layer, name.rpartition(".")[0], shape, biases[f"{layer}.bias"][0]), False
        mine, theirs = _by_shape(self.missing), _by_shape(self.unexpected)
        for shape, layers in mine.items():
            if len(layers) == len(theirs.get(shape, ())) and all(f"{layer}.bias" in self.missing for layer in layers):
                for own, other in zip(layers, theirs[shape]):
                    yield Host(own, other, shape, self.missing[f"{own}.bias"][0]), len(layers) > 1


def folding(sides: Sides) -> Folding:
    """Lines for the batch norms that the port does not have; none where it has batch norms of other names.

    A batch norm belongs to the layer with as many channels whose name is most like its own.
    """
    norms = {
        name.removesuffix(".running_var"): shape
        for name, shape in sides.unexpected.items()
        if name.endswith(".running_var")
    }
    if not norms or any(name.endswith(".running_var") for name in sides.missing):
        return Folding()
    hosts = list(sides.hosts())
    pairs = [
        (unlike(f"{host.layer}.weight", norm), norm, host, ordered)
        for norm, shape in norms.items()
        for host, ordered in hosts
        if shape == (host.channels,) and host.channels in host.weight[:2]
    ]
    found: dict[str, tuple[Host, bool]] = {}
    for _, norm, host, ordered in sorted(pairs, key=lambda pair: pair[0]):
        if norm not in found and host not in [taken for taken, _ in found.values()]:
            found[norm] = host, ordered
    theirs = {f"{norm}.{kind}" for norm in found for kind in KINDS}
    theirs |= {f"{host.layer}.{kind}" for host, _ in found.values() for kind in KINDS[:2]}
    mine = {f"{host.own}.{kind}" for host, _ in found.values() for kind in KINDS[:2]}
    lines = _lines({norm: host for norm, (host, _) in found.items()}, sides)
    return Folding(tuple(lines), frozenset(theirs), frozenset(mine), any(ordered for _, ordered in found.values()))


def _by_shape(weights: Mapping[str, Shape]) -> dict[Shape, list[str]]:
    """Shape -> the layers with a weight of this shape, which is no vector."""
    found: dict[Shape, list[str]] = defaultdict(list)
    for name, shape in weights.items():
        layer, _, kind = name.rpartition(".")
        if kind == "weight" and len(shape) > 1:
            found[shape].append(layer)
    return found


def _lines(hosts: Mapping[str, Host], sides: Sides) -> Iterator[tuple[str, Any]]:
    """One line for each batch norm, or for several whose names differ in numbers alone. hosts: batch norm -> layer."""
    groups: dict[tuple[str, ...], list[tuple[str, ...]]] = defaultdict(list)
    for norm, host in hosts.items():
        names = (host.own, host.layer, norm)
        axis = "" if host.weight[0] == host.channels else "1"
        key = (*_starred(names), axis)
        groups[key].append(names)
    own = {name.rpartition(".")[0] for name in (*sides.missing, *sides.fitting)}
    theirs = {name.rpartition(".")[0] for name in sides.unexpected} | {
        name.rpartition(".")[0] for name, _ in sides.fitting.values()
    }
    for (*patterns, axis), group in groups.items():
        whole = _fitting(patterns[0], own) == {names[0] for names in group}
        whole = whole and _fitting(patterns[1], theirs) == {names[1] for names in group}
        for mine, layer, norm in [patterns] if whole else group:
            yield mine, {"of": layer, "batch_norm": norm, **({"axis": int(axis)} if axis else {})}


def _starred(names: Iterable[str]) -> list[str]:
    """The names with ``*`` in the place of their first numbers, as far as these are the same in all names."""
    numbers = zip(*(re.findall(NUMBER, name) for name in names))
    count = sum(1 for _ in takewhile(lambda each: len(set(each)) == 1, numbers))
    return [re.sub(NUMBER, "*", name, count=count) if count else name for name in names]


def _fitting(pattern: str, names: Iterable[str]) -> set[str]:
    """The names for which a pattern stands."""
    known = re.compile("[^.]*".join(map(re.escape, pattern.split("*"))))
    return {name for name in names if known.fullmatch(name)}
