"""A model folder's names.toml: canonical names against a framework's own, explicitly and both ways."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from xverify.errors import WeightsError


def rename(names: Mapping[str, object], table: Mapping[str, str]) -> dict[str, str]:
    """The framework's own name -> canonical name, for each of its parameters.

    table: canonical -> the framework's, for a whole parameter ("fc1.weight") or a layer ("fc1", which then renames all
    of its parameters). The longest matching entry wins. Raises WeightsError for an entry that matches nothing.
    """
    theirs = {value: key for key, value in table.items()}
    used: set[str] = set()
    result = {}
    for name in names:
        prefix = _prefix(name, theirs)
        used.add(prefix)
        result[name] = theirs[prefix] + name.removeprefix(prefix) if prefix else name
    unused = sorted(set(theirs) - used)
    if unused:
        raise WeightsError(f"names.toml: {theirs[unused[0]]!r} is said to be {unused[0]!r}, which the model has not")
    return result


def rename_layers(names: Iterable[str], table: Mapping[str, str]) -> dict[str, str]:
    """The same for layers, with weights or without. An entry for one weight says what its layer is called, too."""
    theirs = {value: key for key, value in table.items()}
    for own, canonical in list(theirs.items()):
        layer, _, kind = own.rpartition(".")
        if layer and canonical.rpartition(".")[2] == kind:
            theirs.setdefault(layer, canonical.rpartition(".")[0])
    return {
        name: theirs[prefix] + name.removeprefix(prefix) if (prefix := _prefix(name, theirs)) else name
        for name in names
    }


def _prefix(name: str, theirs: Mapping[str, str]) -> str:
    """The longest leading part of a dotted name that the table has; '' when none."""
    parts = name.split(".")
    prefixes = (".".join(parts[:length]) for length in range(len(parts), 0, -1))
    return next((prefix for prefix in prefixes if prefix in theirs), "")
