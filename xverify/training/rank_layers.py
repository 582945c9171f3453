"""Which layer is the first in which ranks compute something else than one process.

This says where a step differs that is known to differ. It decides nothing, so it needs no noise floor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np

from ..errors import SubjectError
from ..framework.capture import LayerCall
from ..messages import Capture
from ..messages.training import SetState, TrainingState
from ..processes.ranks import RankedWorker
from ..processes.worker import Worker
from ..reference.build import Prepared, ReferenceProcess
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from ..workload.ranks import shard_file
from .compared import rms
from .learner import Learner

FAR = 1e-3  # rms of a difference over that of the right values: rounding is far below it, and a fault that a loss shows is above it
FOLDER = "rank-layers"  # of the arrays, in the folder of each process

Call = tuple[str, int]  # the name of a layer, and the number of its earlier calls


@dataclass(frozen=True)
class Calls:
    """The calls of layers in one process. folder: of their arrays."""

    folder: Path
    records: Mapping[Call, LayerCall]

    @classmethod
    def of(cls, folder: Path, records: Sequence[LayerCall]) -> Calls:
        """Those of a capture."""
        return cls(folder, {(each.name, each.call): each for each in records})

    def arrays(self, call: Call, outputs: bool) -> list[Array]:
        """What a call returned, or what it got."""
        record = self.records[call]
        return [np.load(self.folder / file) for file in (record.outputs if outputs else record.inputs)]


class RankLayers:
    """The layers of all ranks beside those of the reference, in a forward pass on the first batch.

    worker: of the ranks. reference: its worker. batches: the file of the batches for training. inputs: names of the model's inputs.
    layers: canonical names.
    """

    def __init__(
        self,
        worker: RankedWorker,
        reference: Worker,
        state: TrainingState,
        batches: Path,
        inputs: Sequence[str],
        layers: tuple[str, ...],
    ) -> None:
        self.worker, self.reference, self.state = worker, reference, state
        self.batches, self.inputs, self.layers = batches, inputs, layers

    @cached_property
    def captured(self) -> list[Calls]:
        """The calls of the reference, then those of each rank; none where they could not be captured."""
        file, ranks = self.batches.with_name(f"first-{self.batches.name}"), range(len(self.worker.ranks.items))
        keys = [case_key(0, name) for name in self.inputs]
        for whole, first in [
            (self.batches, file),
            *((shard_file(self.batches, each), shard_file(file, each)) for each in ranks),
        ]:
            arrays = npz.load_file(whole)
            npz.save_file({key: arrays[key] for key in keys}, first)
        folders = [each / FOLDER for each in (self.reference.folder, *self.worker.folders)]
        for folder in folders:
            folder.mkdir(exist_ok=True)
        try:
            for worker in (self.reference, self.worker):
                worker.ask(SetState(self.state))
            one = self.reference.ask(Capture(str(file), 0, str(folders[0]), self.layers))
            each_rank = self.worker.ask_each(Capture(str(file), 0, str(folders[1]), self.layers))
        except SubjectError:
            return []
        return [Calls.of(folder, each.records) for folder, each in zip(folders, [one, *each_rank])]

    @cached_property
    def order(self) -> list[str]:
        """The layers in the order in which one process calls them."""
        return list(dict.fromkeys(name for name, _ in self.captured[0].records)) if self.captured else []

    @cached_property
    def first(self) -> str:
        """What the first layer that differs shows, as the end of a sentence; "" where none does or can be seen."""
        if not self.captured:
            return ""
        right, *ranks = self.captured
        for call in right.records:
            if any(call not in each.records for each in ranks):
                continue
            if self._differs(call, False):
                return (
                    f"; {call[0]} is the first layer that is given something else: what is computed before it differs"
                )
            if says := self._differs(call, True):
                return f"; {call[0]} is the first layer that computes something else" + says
        return ""

    def _differs(self, call: Call, outputs: bool) -> str:
        """How what a call returned, or got, differs, as the end of a sentence; "" where it does not, or cannot be put together."""
        right, *ranks = (each.arrays(call, outputs) for each in self.captured)
        for place, one in enumerate(right):
            parts = [each[place] for each in ranks if place < len(each)]
            whole = together(parts, one.shape)
            if one.dtype.kind != "f" or len(parts) < len(ranks) or whole is None:
                continue
            if any(_far(each, one) for each in whole):
                return (
                    self._of_sum(call[0], parts, one)
                    or f": its error is {rms(whole[0] - one) / (rms(one) or 1):.2g} of its size"
                )
        return ""

    def _of_sum(self, layer: str, parts: Sequence[Array], right: Array) -> str:
        """That the ranks have parts of the sum that an output is, as the end of a sentence; "" where they do not."""
        if any(each.shape != right.shape for each in parts):
            return ""
        bias = npz.OnDisk(Path(self.state.weights)).get(f"{layer}.bias")
        found = np.sum(parts, axis=0)
        for each in (
            found,
            *((found - (len(parts) - 1) * bias,) if bias is not None and bias.shape == right.shape[-1:] else ()),
        ):
            if not _far(each, right):
                return ": it is not summed over the ranks, and each has a part of the sum"
        return ""


def layers_of(
    learner: Learner, process: ReferenceProcess, prepared: Prepared, state: TrainingState, layers: tuple[str, ...]
) -> RankLayers | None:
    """The layers of a subject whose ranks are processes, which are captured when something has to be explained; None for others."""
    if not isinstance(learner.worker, RankedWorker):
        return None
    return RankLayers(
        learner.worker, process.worker, state, prepared.training, list(process.folder.spec.inputs), layers
    )


def together(parts: Sequence[Array], shape: tuple[int, ...]) -> list[Array] | None:
    """The arrays of all ranks as arrays of this shape: each, where it is whole; otherwise one, put together along one axis.

    None where they cannot be put together so.
    """
    if all(each.shape == shape for each in parts):
        return list(parts)
    if any(each.ndim != len(shape) for each in parts):
        return None
    for axis, size in enumerate(shape):
        others = {(*each.shape[:axis], *each.shape[axis + 1 :]) for each in parts}
        if others == {(*shape[:axis], *shape[axis + 1 :])} and sum(each.shape[axis] for each in parts) == size:
            return [np.concatenate(parts, axis)]
    return None


def _far(found: Array, right: Array) -> bool:
    return not rms(found - right) <= FAR * rms(right)


def backward_order(wrong: Mapping[str, bool], layers: Sequence[str]) -> str:
    """Where in a backward pass gradients begin to differ, as the end of a sentence; "" where that says nothing.

    wrong: parameter -> whether its gradient differs. layers: in the order of the forward pass.
    """
    place = {layer: index for index, layer in enumerate(layers)}
    known = [name for name in wrong if name.rpartition(".")[0] in place]
    known.sort(key=lambda name: place[name.rpartition(".")[0]], reverse=True)
    right = []
    for name in known:
        if wrong[name]:
            break
        right.append(name.rpartition(".")[0])
    layers_right = list(dict.fromkeys(right))
    if len(right) in (0, len(known)):
        return ""
    return (
        f"; in the order of the backward pass, {known[len(right)]} is the first that differs, after {layers_right[-1]}"
    )
