"""The tables of names.toml: canonical names, and the names that a framework uses instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xverify.errors import WeightsError, nearest


def rename(names: Mapping[str, object], table: Mapping[str, str], layers: Iterable[str] = ()) -> dict[str, str]:
    """Native name -> canonical name, for each of these native names.

    names: the native names of the parameters.
    table: canonical -> native name, for a whole parameter ("fc1.weight") or for a layer ("fc1"), which renames all parameters of
        the layer. The longest matching entry decides.
    layers: the native names of the layers; an entry may name a layer without parameters.
    Raises WeightsError for an entry that matches nothing.
    """
    canonical_of = {value: key for key, value in table.items()}
    used: set[str] = set()
    result = {}
    for name in names:
        prefix = _prefix(name, canonical_of)
        used.add(prefix)
        result[name] = canonical_of[prefix] + name.removeprefix(prefix) if prefix else name
    used |= {_prefix(layer, canonical_of) for layer in layers}
    unused = sorted(set(canonical_of) - used)
    if unused:
        raise WeightsError(
            f"names.toml: {canonical_of[unused[0]]!r} is said to be {unused[0]!r}, which does not exist in the model"
            f"{nearest(unused[0], [*names, *layers])}"
        )
    return result


def rename_layers(names: Iterable[str], table: Mapping[str, str]) -> dict[str, str]:
    """Native name -> canonical name, for layers with or without weights.

    table: as in ``rename``. An entry for one weight also renames the layer of this weight.
    """
    canonical_of = {value: key for key, value in table.items()}
    for own, canonical in list(canonical_of.items()):
        layer, _, kind = own.rpartition(".")
        if layer and "." in canonical and canonical.rpartition(".")[2] == kind:
            canonical_of.setdefault(layer, canonical.rpartition(".")[0])
    return {
        name: canonical_of[prefix] + name.removeprefix(prefix) if (prefix := _prefix(name, canonical_of)) else name
        for name in names
    }


def _prefix(name: str, canonical_of: Mapping[str, str]) -> str:
    """The longest leading part of a dotted name that is in the table; '' when there is none."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in canonical_of), "")
