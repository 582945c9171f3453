"""Recognises images that a file takes with their axes in another order than its signature says, and outputs with swapped axes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ..errors import SubjectError
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from .computing import FIRST, Computed
from .matching import content
from .meaning import Meaning
from .subject import Opened, compute

FITS, BETTER = (
    1e-3,
    30.0,
)  # relative error that an order of axes must reach, and by how much it must be better than the given one
MOST_AXES = 5
# (axes of the reference's image in the order of the file, what the file takes).
ORDERS = {4: (((0, 2, 3, 1), "NHWC"), ((0, 3, 1, 2), "NCHW")), 3: (((0, 2, 1), "NWC"),)}


def turned_inputs(opened: Opened, computed: Computed, meaning: Meaning) -> Iterator[str]:
    """A sentence on each image with which the file gives the reference's outputs when its axes are turned.

    The values are then poured into the shape that the file declares, as the memory of an array in the other order.
    """
    arrays = npz.load_file(computed.inputs)
    given = {key: array for key, array in arrays.items() if key.startswith(f"{FIRST}/")}
    plain = _error(computed.own, computed, meaning)
    for key, array in given.items():
        for order, layout in ORDERS.get(array.ndim, ()):
            if array.dtype.kind != "f" or array.shape[1] == 1:
                continue
            turned = np.ascontiguousarray(array.transpose(order))
            try:
                found = _compute(opened, {**given, key: turned.reshape(array.shape)})
            except SubjectError:
                continue
            error = _error(found, computed, meaning)
            if error <= FITS and error * BETTER <= plain:
                name = key.partition("/")[2]
                shape = "x".join(map(str, array.shape))
                how = (
                    "--layout turned gives it so"
                    if turned.shape == array.shape
                    else f"it declares the shape {shape}, and reads the numbers in another order"
                )
                yield f"the file gives the reference's outputs when its input {name} is given as {layout}: {how}"


def _compute(opened: Opened, given: Mapping[str, Array]) -> Mapping[str, Array]:
    path = opened.worker.folder / "turned.npz"
    npz.save_file(dict(given), path)
    return compute(opened, path, "turned-outputs")


def _error(own: Mapping[str, Array], computed: Computed, meaning: Meaning) -> float:
    """The relative error of the first case's outputs; infinity when nothing is comparable. own: with the file's names."""
    pairs = [
        (meaning.outputs[case_key(FIRST, name)], own[case_key(FIRST, mine)])
        for name, mine in computed.names.items()
        if case_key(FIRST, mine) in own and own[case_key(FIRST, mine)].dtype.kind == "f"
    ]
    return content(pairs) if pairs else math.inf


def swapped_axes(pairs: Sequence[tuple[Array, Array]]) -> str:
    """A sentence on the order of axes in which a file returns an output; "" when no other order gives the reference's values.

    pairs: (the reference's array, the file's array) of one output in every case.
    """
    rank = pairs[0][0].ndim if pairs else 0
    if not 2 <= rank <= MOST_AXES or any(each.ndim != rank for pair in pairs for each in pair):
        return ""
    plain = content(pairs)
    for order in itertools.permutations(range(rank)):
        if order == tuple(range(rank)):
            continue
        error = content([(right.transpose(order), own) for right, own in pairs])
        if error <= FITS and error * BETTER <= plain:
            return f"its axes are transposed: it is the reference's with the axes in the order {order}"
    return ""
