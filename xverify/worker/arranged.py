"""A port whose weights are stored otherwise, seen in the form of the reference: its layers, and its training.

See weights.arrangement for the weights themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Unsupported
from ..framework.capture import LayerCall, OpenCall, ReplacingRecorder, returned_key
from ..framework.training import Training, Used
from ..weights.arrangement import Arrangement
from ..weights.canonical import Array
from ..weights.channels import Channels, Piece
from ..workload.recipe import Recipe

LABEL = "stored otherwise: "  # before the name of a layer of the port while its calls are recorded


class CallSplitter:
    """Makes of the calls of a port's layers those of the reference's layers that they compute.

    channels: of the port. folder: of the captured arrays. channels_last: see Framework.channels_last.
    """

    def __init__(self, channels: Channels, folder: Path, channels_last: bool) -> None:
        self.channels, self.folder, self.channels_last = channels, folder, channels_last
        self.open: dict[tuple[str, int], dict[str, LayerCall]] = {}
        self.written = 0

    def split(self, records: Iterable[LayerCall]) -> list[LayerCall]:
        """The calls of the reference's layers, in the order in which they are complete."""
        result: list[LayerCall] = []
        for call in records:
            own = call.name.removeprefix(LABEL)
            if own == call.name:
                result.append(call)
                continue
            for name, pieces in self.channels.pieces.items():
                if own in {piece.own for piece in pieces}:
                    calls = self.open.setdefault((name, call.call), {})
                    calls[own] = call
                    if len(calls) == len(pieces):
                        result += self._joined(name, pieces, calls)
        return result

    def _joined(self, name: str, pieces: Sequence[Piece], calls: Mapping[str, LayerCall]) -> list[LayerCall]:
        """The call of one layer of the reference; [] where the calls of the port's layers are not one."""
        own = [calls[piece.own] for piece in pieces]
        first = own[0]
        if len({call.inputs for call in own}) > 1 or any(len(call.outputs) != 1 for call in own):
            return []
        outputs = self._rows(pieces, [call.outputs[0] for call in own])
        if not outputs:
            return []
        gradients = [call.output_gradients[0] for call in own if call.output_gradients]
        upstream = self._rows(pieces, gradients) if len(gradients) == len(own) and all(gradients) else None
        alone = len(own) == 1 and len(self.channels.made_by(pieces[0].own)) == 1
        order = pieces[0].inputs
        joined = replace(
            first,
            name=name,
            inputs=() if pieces[0].folded else tuple(self._in_order(file, order) for file in first.inputs),
            outputs=(outputs,),
            # The gradient of an input is the sum over all layers that the port computes at once.
            input_gradients=tuple(
                self._in_order(file, order) if alone and file else None for file in first.input_gradients
            ),
            output_gradients=(upstream,) if first.output_gradients else (),
        )
        return [joined]

    def _rows(self, pieces: Sequence[Piece], files: Sequence[str | None]) -> str:
        """The file of the reference's channels, of which each file has some; "" where a file has another number of channels."""
        arrays = [np.load(self.folder / str(file), mmap_mode="r") for file in files]
        axis = _axis(pieces[0], self.channels_last)
        wanted = [max(int(piece.places.max()) + 1, 1) for piece in pieces]
        if any(not array.ndim or array.shape[axis] < size for array, size in zip(arrays, wanted)):
            return ""
        order = np.argsort(np.concatenate([piece.rows for piece in pieces]))
        taken = [np.take(array, piece.places, axis) for array, piece in zip(arrays, pieces)]
        return self._write(np.take(np.concatenate(taken, axis), order, axis))

    def _in_order(self, file: str, order: Array | None) -> str:
        """The file of an input in the order of the reference."""
        return file if order is None else self._write(np.take(np.load(self.folder / file), order, -1))

    def _write(self, array: Array) -> str:
        file = f"split-{self.written}.npy"
        self.written += 1
        np.save(self.folder / file, array)
        return file


def _axis(piece: Piece, channels_last: bool) -> int:
    """The axis of the channels in the output of a port's layer."""
    return 1 if piece.spatial and not channels_last else -1


class ReplacingChannels(ReplacingRecorder):
    """Lets a layer of the port that computes several of the reference's return other values in the channels of one of them.

    channels: of the port. channels_last: see Framework.channels_last. The other arguments are those of ReplacingRecorder.
    """

    def __init__(self, channels: Channels, channels_last: bool, *others: Any) -> None:
        super().__init__(*others)
        self.channels, self.channels_last = channels, channels_last

    def replacement(self, record: OpenCall, place: int, computed: Array) -> Array | None:
        own = record.name.removeprefix(LABEL)
        if own == record.name:
            return super().replacement(record, place, computed)
        changed = None
        for name in sorted(self.channels.made_by(own)):
            array = self.returned.get(returned_key(name, record.call, place))
            for piece in self.channels.pieces[name] if array is not None else ():
                if piece.own == own:
                    changed = _placed(computed if changed is None else changed, array, piece, self.channels_last)
        return changed


def _placed(output: Array, array: Array | None, piece: Piece, channels_last: bool) -> Array:
    """An output of a port's layer with the reference's channels in their places; unchanged where their other axes differ."""
    axis = _axis(piece, channels_last)
    mine, theirs = np.moveaxis(output.copy(), axis, 0), np.moveaxis(np.asarray(array), axis, 0)
    if mine.shape[1:] == theirs.shape[1:]:
        mine[piece.places] = theirs[piece.rows]
    return np.ascontiguousarray(np.moveaxis(mine, 0, axis))


class ArrangedTraining(Training):
    """The training of a port, with the reference's weights in the place of the port's own.

    The optimizer must treat every value by itself, so that it computes the same in both forms.
    """

    def __init__(self, inner: Training, arrangement: Arrangement) -> None:
        self.inner, self.arrangement = inner, arrangement
        wrong = _not_by_itself(inner, arrangement)
        if wrong:
            raise Unsupported(
                f"{next(iter(arrangement.moves))} is stored otherwise than in the reference, and {wrong}: train with another "
                "setting, or compare inference"
            )

    @property
    def names(self) -> Sequence[str]:  # type: ignore[override]
        """Those of the reference's weights take the place of those that are made of them."""
        return self._canonical_names(self.inner.names)

    @property
    def sparse(self) -> Sequence[str]:  # type: ignore[override]
        return self._canonical_names(self.inner.sparse)

    def _canonical_names(self, names: Iterable[str]) -> list[str]:
        moves = self.arrangement.moves
        return list(dict.fromkeys(to for own in names for to in (moves[own].names() if own in moves else [own])))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    @property
    def optimizer(self) -> Any:  # type: ignore[override]
        return self.inner.optimizer

    def step(self, *batch: Any) -> Any:
        return self.inner.step(*batch)

    def gradients(self, *batch: Any) -> tuple[float, dict[str, Array]]:
        loss, found = self.inner.gradients(*batch)
        return loss, self._back(found)

    def apply(self, gradients: Mapping[str, Array]) -> None:
        self.inner.apply(self._own(gradients))

    def optimizer_state(self) -> tuple[int, dict[str, list[Array]]]:
        steps, state = self.inner.optimizer_state()
        count = len(self.optimizer.state_names)
        parts = [self._back({name: arrays[index] for name, arrays in state.items()}) for index in range(count)]
        return steps, {name: [part[name] for part in parts] for name in self._canonical_names(state)}

    def set_optimizer_state(self, steps: int, state: Mapping[str, Sequence[Array]]) -> None:
        count = len(self.optimizer.state_names)
        parts = [self._own({name: arrays[index] for name, arrays in state.items()}) for index in range(count)]
        self.inner.set_optimizer_state(steps, {name: [part[name] for part in parts] for name in self.inner.names})

    def observe(self, *batch: Any) -> Used:
        used = self.inner.observe(*batch)
        return Used(
            self._back(used.accumulated),
            self._back(used.clipped),
            self._numbers(used.rates),
            self._numbers(used.decays),
        )

    def averages(self) -> dict[str, Array]:
        return self._back(self.inner.averages())

    def set_averages(self, steps: int, averages: Mapping[str, Array]) -> None:
        self.inner.set_averages(steps, self._own(averages))

    def unfrozen(self) -> AbstractContextManager[object]:
        return self.inner.unfrozen()

    def scaler_state(self) -> tuple[float, int]:
        return self.inner.scaler_state()

    def set_scaler(self, scale: float, counted: int) -> None:
        self.inner.set_scaler(scale, counted)

    def _back(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return dict(self.arrangement.to_canonical(arrays))

    def _own(self, arrays: Mapping[str, Array]) -> dict[str, Array]:
        return dict(
            self.arrangement.to_own(arrays, {name: name for name in arrays if name not in self.arrangement.shapes})
        )

    def _numbers(self, numbers: Mapping[str, float]) -> dict[str, float]:
        moves = self.arrangement.moves
        return {to: number for own, number in numbers.items() for to in (moves[own].names() if own in moves else [own])}


def _not_by_itself(inner: Training, arrangement: Arrangement) -> str:
    """Why training of the arranged weights is another one than the reference's, as a clause; "" where it is not."""
    twice = next((own for own, move in arrangement.moves.items() if move.keeps_layer), "")
    if twice:
        return f"{twice} and its equal are trained as two weights on one side, and as one on the other"
    if inner.optimizer.name == "adafactor":
        return "adafactor scales a step with means over a whole weight, of which the port has another"
    if inner.optimizer.recipe.clip and inner.optimizer.recipe.clip[0] == "clip_each":
        return "clip_each divides by the norm of a whole gradient, of which the port has another"
    return ""


def recipe_names(recipe: Recipe, arrangement: Arrangement, canonical: Mapping[str, str]) -> dict[str, str]:
    """The port's own name -> a canonical name with the same settings in a recipe.

    canonical: as State.canonical_names. Raises Unsupported where a weight is made of some with different settings.
    """
    names = {own: name for own, name in canonical.items() if own not in arrangement.shapes}
    for own, move in arrangement.moves.items():
        first, *others = move.names()
        for other in others:
            if any(group.has(first) != group.has(other) for group in recipe.groups) or (
                recipe.freezes(first) != recipe.freezes(other)
            ):
                raise Unsupported(
                    f"{own} is made of {first} and {other}, which the recipe trains with different settings: the port cannot "
                    "have both"
                )
        names[own] = first
    return names
