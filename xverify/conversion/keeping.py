"""The option --keep: which layers stay in float32 where the others get a lower precision."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from ..errors import UsageError, nearest, with_article
from ..framework import converter
from ..framework.converter import Converter, Layer

AUTO = "auto"  # in the place of names: the fewest layers with which the conditions of --accept hold
SHOWN = 5  # names in a message


def check(keep: str, quantize: str | None, accept: str | None, form: type[Converter]) -> None:
    """Raise UsageError when layers cannot stay in float32, or nothing says which ones."""
    if quantize is None:
        raise UsageError(
            f"--keep {keep}: it names layers that stay in float32; add --quantize int8 or --quantize float16"
        )
    if not form.mixes:
        mixing = " or ".join(name for name in converter.files() if converter.load(name).mixes)
        raise UsageError(
            f"--keep {keep}: no layer of {with_article(form.title)} can stay in float32 by itself; write --to {mixing}"
        )
    if keep == AUTO and accept is None:
        raise UsageError("--keep auto needs the conditions that the file is to meet, e.g. --accept 'sqnr>=40'")
    if not all(part.strip() for part in keep.split(",")):
        raise UsageError(f"--keep {keep!r}: write names of layers with commas between, or auto")


def named_layers(keep: str, layers: Sequence[Layer]) -> tuple[str, ...]:
    """The names of the layers that --keep names, in the order of computation. Raises UsageError.

    A layer is named by one of its nodes, by a part of its name between slashes, such as a module, or by a pattern with * and ?.
    """
    found = set[str]()
    for part in map(str.strip, keep.split(",")):
        mine = {each.name for each in layers if _is_named(each, part)}
        if not mine:
            names = [each.name for each in layers]
            known = [*names, *(piece for name in names for piece in name.split("/") if piece)]
            more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
            raise UsageError(
                f"--keep {part}: the file has no layer of this name{nearest(part, known)} Layers: "
                f"{', '.join(names[:SHOWN])}{more}"
            )
        found |= mine
    return tuple(each.name for each in layers if each.name in found)


def _is_named(layer: Layer, part: str) -> bool:
    return part in layer.nodes or part in layer.name.split("/") or fnmatchcase(layer.name, part)
