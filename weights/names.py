"""A model folder's names.toml: canonical names against a framework's own, explicitly and both ways."""

from __future__ import annotations

from collections.abc import Mapping

from xverify.errors import WeightsError


def rename(names: Mapping[str, object], table: Mapping[str, str]) -> dict[str, str]:
    """The framework's own name -> canonical name, for each of its parameters.

    table: canonical -> the framework's, for a whole parameter ("fc1.weight") or a layer ("fc1", which then renames all
    of its parameters). The longest matching entry wins. Raises WeightsError for an entry that matches nothing.
    """
    theirs = {value: key for key, value in table.items()}
    used = set()
    result = {}
    for name in names:
        parts = name.split(".")
        for length in range(len(parts), 0, -1):
            prefix = ".".join(parts[:length])
            if prefix in theirs:
                used.add(prefix)
                result[name] = ".".join([theirs[prefix], *parts[length:]])
                break
        else:
            result[name] = name
    unused = sorted(set(theirs) - used)
    if unused:
        raise WeightsError(f"names.toml: {theirs[unused[0]]!r} is said to be {unused[0]!r}, which the model has not")
    return result
