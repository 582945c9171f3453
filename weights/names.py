"""The tables of names.toml: canonical names, and the names that a framework uses instead.

A ``*`` in an entry stands for any text without a dot: ``"lstm.*_l0_reverse" = "backward.*_l0"``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from xverify.errors import WeightsError, nearest


class Found(NamedTuple):
    """The entry that a name matches. own: the native side of the entry. text: what it matches of the name. to: what replaces it."""

    own: str
    text: str
    to: str


def rename(names: Mapping[str, object], table: Mapping[str, str], layers: Iterable[str] = ()) -> dict[str, str]:
    """Native name -> canonical name, for each of these native names.

    names: the native names of the parameters.
    table: canonical -> native name, for a whole parameter ("fc1.weight") or for a layer ("fc1"), which renames all parameters of
        the layer. The longest matching entry decides.
    layers: the native names of the layers; an entry may name a layer without parameters.
    Raises WeightsError for an entry that matches nothing, and where two parameters get one name.
    """
    canonical_of = {value: key for key, value in table.items()}
    used = {found.own for name in [*names, *layers] if (found := _entry(name, canonical_of))}
    unused = sorted(set(canonical_of) - used)
    if unused:
        raise WeightsError(
            f"names.toml: {canonical_of[unused[0]]!r} is said to be {unused[0]!r}, which does not exist in the model"
            f"{nearest(unused[0], [*names, *layers])}"
        )
    result = _renamed(names, canonical_of)
    owners: dict[str, str] = {}
    for own, name in result.items():
        if name in owners:
            raise WeightsError(f"names.toml: {owners[name]!r} and {own!r} are both {name!r} with its entries")
        owners[name] = own
    return result


def rename_all(names: Iterable[str], table: Mapping[str, str]) -> dict[str, str]:
    """As ``rename``, for names that need not be parameters of the model; nothing is checked."""
    return _renamed(names, {value: key for key, value in table.items()})


def rename_layers(names: Iterable[str], table: Mapping[str, str]) -> dict[str, str]:
    """Native name -> canonical name, for layers with or without weights.

    table: as in ``rename``. An entry for one weight, or with a ``*`` for several, also renames the layer of these weights.
    A layer without an entry whose name is said to be another one's is none of the reference's, and is left out.
    """
    canonical_of = {value: key for key, value in table.items()}
    names = list(names)
    taken = {canonical for own, canonical in _renamed(names, canonical_of).items() if own != canonical}
    for own, canonical in list(canonical_of.items()):
        layer, _, kind = own.rpartition(".")
        of_layer = any(_pattern(name, own, canonical) for name in names)  # also of one with layers in it
        if layer and not of_layer and "." in canonical and (canonical.rpartition(".")[2] == kind or "*" in kind):
            canonical_of.setdefault(layer, _layer_of(canonical))
    renamed = _renamed(names, canonical_of)
    return {own: canonical for own, canonical in renamed.items() if own != canonical or canonical not in taken}


def _layer_of(weight: str) -> str:
    """The layer of a weight in canonical names. What a parametrization computes a weight from belongs to the layer itself."""
    layer, parametrized, _ = weight.partition(".parametrizations.")
    return layer if parametrized else weight.rpartition(".")[0]


def _renamed(names: Iterable[str], canonical_of: Mapping[str, str]) -> dict[str, str]:
    result = {}
    for name in names:
        found = _entry(name, canonical_of)
        result[name] = found.to + name.removeprefix(found.text) if found else name
    return result


def _entry(name: str, canonical_of: Mapping[str, str]) -> Found | None:
    """The entry that matches the longest leading part of a dotted name; None when there is none."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    exact = next((Found(prefix, prefix, canonical_of[prefix]) for prefix in prefixes if prefix in canonical_of), None)
    matches = [exact] if exact else []
    matches += [found for own, to in canonical_of.items() if "*" in own and (found := _pattern(name, own, to))]
    return max(matches, key=lambda each: len(each.text), default=None)


def _pattern(name: str, own: str, to: str) -> Found | None:
    """What an entry with a ``*`` says about a name; None when it does not match. own, to: its native and its canonical side."""
    match = re.match("([^.]*)".join(map(re.escape, own.split("*"))) + r"(?=\.|$)", name)
    if match is None:
        return None
    texts = iter(match.groups())
    return Found(own, match[0], re.sub(r"\*", lambda _: next(texts, "*"), to))
