"""The work of a worker whose model is a decoder."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import Unsupported
from ..framework.decoding import Decoder, DecoderOffers, LayerStep, Mistake, Way
from ..messages import decoding as messages
from ..messages.decoding import Computed
from ..verdict.limits import OWN_GROUP, UNIT
from ..weights import npz
from ..weights.canonical import Array
from ..workload.keys import case_key
from .handlers import Group
from .soundness import between

# Numbers of the sequences of a call, and the positions that it computes: (sequences, tokens), -1 for padding.
Around = Callable[[Sequence[int], Array], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Given:
    """The sequences that are computed. tokens: (sequences, length). more: further inputs, whose first axis is the sequences."""

    tokens: Array
    more: tuple[Array, ...] = ()


class DecodingWork(Group):
    """Handlers of requests about a decoder."""

    def find(self, request: messages.FindDecoder) -> DecoderOffers:
        """Tell what the model takes."""
        return self._decoder(self.state.model).offers

    def continue_sequences(self, request: messages.Continue) -> None:
        """Continue sequences by the best token of every step."""
        state = self.state
        given = self._given(request.inputs)
        tokens = given.tokens
        if request.weights:
            model = state.float64_model()
            state.write_weights(model, npz.OnDisk(Path(request.weights)))
            decoder, context = self._decoder(model), state.framework.float64_arithmetic()
        else:
            decoder, context = self._decoder(state.model), state.framework.inference()
        cache, new = None, tokens
        with context:
            while tokens.shape[1] < request.length:
                logits, cache = decoder.call(new, cache, keep=not request.weights, more=given.more)
                best = logits[:, -1].argmax(-1).astype(tokens.dtype)[:, None]
                tokens = np.concatenate([tokens, best], 1)
                new = tokens if request.weights else best
        arrays = npz.load_file(Path(request.inputs))
        npz.save_file({**arrays, case_key(0, next(iter(self.state.inputs))): tokens}, Path(request.path))

    def compute(self, request: messages.ComputeWay) -> Computed:
        """Compute all positions in one way."""
        decoder, way = self._decoder(self.state.model), request.way
        try:
            with self.state.framework.inference(), decoder.threads(way.threads) if way.threads else nullcontext():
                found, remark = all_positions(decoder, self._given(request.inputs), way)
        except Unsupported as error:
            return Computed(problem=str(error))
        npz.save_file({"logits": found}, Path(request.path))
        return Computed(remark=remark)

    def compute_mistaken(self, request: messages.ComputeMistaken) -> tuple[Mistake, ...]:
        """Compute a way in float64 with known mistakes."""
        state, end = self.state, time.monotonic() + request.seconds
        model = state.float64_model()
        state.write_weights(model, npz.OnDisk(Path(request.weights)))
        given, made, arrays = self._given(request.inputs), list[Mistake](), dict[str, Array]()
        with state.framework.float64_arithmetic():
            for mistake, decoder in self._decoder(model).mistakes(request.way, given.tokens, given.more):
                if request.only and mistake.says not in ("", *request.only):
                    continue
                try:
                    found, _ = all_positions(decoder, given, request.way, request.places)
                except Exception:  # this model cannot make the mistake: its own code fails then, in whichever way
                    continue
                arrays[str(len(made))] = found
                made.append(mistake)
                if time.monotonic() > end:
                    break
        npz.save_file(arrays, Path(request.path))
        return tuple(made)

    def locate(self, request: messages.LocateStep) -> str:
        """Name the layer that first differs in one step."""
        state = self.state
        given = self._given(request.inputs)
        single = self._decoder(state.model)
        kept = given.tokens.shape[1] - request.way.missing(request.sequence, given.tokens.shape[1])
        row = slice(request.sequence, request.sequence + 1)
        tokens, more = given.tokens[row, :kept], [each[row] for each in given.more]
        truth, until = self._exact_steps(single, tokens, more)
        with state.framework.inference(), single.watched(0) as whole:
            whole.append(_output(single.call(tokens, None, keep=False, more=more)[0][0]))
        found, place = self._watched_step(single, given, request)
        differs = first_different(found, place, truth, whole, request.step, single.shows)
        return differs or (f"a later node than can be computed in float64: {until.rstrip('.')}" if until else "")

    def _exact_steps(self, single: Decoder, tokens: Array, more: Sequence[Array]) -> tuple[list[LayerStep], str]:
        """The calls of all layers in a full pass in float64. single: the subject.

        The second part says at which operator of a graph they end, because it has no float64; "" where they are all there are.
        """
        state, call = self.state, single.graph_call(tokens, more)
        if call is not None:
            from ..replay.graph.evaluation import evaluate
            from ..replay.graph.model import Graph, UnsupportedOperator

            steps = list[LayerStep]()
            graph = Graph(call.model, str(call.folder))
            try:
                evaluate(graph, call.feed, lambda node, values: steps.extend(call.steps(node.name, values)))
            except UnsupportedOperator as error:
                return steps, str(error)
            return steps, ""
        model = state.float64_model()
        state.write_weights(model, dict(state.read_weights(state.model)))
        exact = self._decoder(model)
        with state.framework.float64_arithmetic(), exact.watched(0) as truth:
            truth.append(_output(exact.call(tokens, None, keep=False, more=more)[0][0]))
        return truth, ""

    def _watched_step(
        self, decoder: Decoder, given: Given, request: messages.LocateStep
    ) -> tuple[list[LayerStep], int]:
        """(the layers and the output of the call that computes the position, the place of its token in this call)."""
        found: list[LayerStep] = []
        place = 0
        way = request.way
        with self.state.framework.inference(), decoder.threads(way.threads) if way.threads else nullcontext():

            def around(rows: Sequence[int], where: Array) -> AbstractContextManager[Any]:
                nonlocal found, place
                index = list(rows).index(request.sequence) if request.sequence in rows else -1
                if index < 0 or request.step not in where[index]:
                    return nullcontext()
                place = int(np.flatnonzero(where[index] == request.step)[0])
                return _Kept(decoder.watched(index), found)

            for rows, where, logits, _ in walk(decoder, given, way, around):
                index = list(rows).index(request.sequence) if request.sequence in rows else -1
                if index >= 0 and request.step in where[index]:
                    found.append(_output(logits[index]))
        return found, place

    def _decoder(self, model: Any) -> Decoder:
        return self.state.framework.decoder(model, self.state.inputs, next(iter(self.state.outputs)))

    def _given(self, path: str) -> Given:
        """What the first case of an array file gives."""
        arrays = npz.load_file(Path(path))
        tokens, *more = (arrays[case_key(0, name)] for name in self.state.inputs)
        return Given(tokens, tuple(more))


def _output(values: Array) -> LayerStep:
    """The output of a model beside the steps of its layers, under no name. values: (tokens, ...), of one sequence."""
    return LayerStep("", None, values.astype(np.float64))


class _Kept:
    """A context that adds what another one has collected to a list."""

    def __init__(self, inner: AbstractContextManager[list[LayerStep]], into: list[LayerStep]) -> None:
        self.inner, self.into = inner, into

    def __enter__(self) -> None:
        self.found = self.inner.__enter__()

    def __exit__(self, *error: Any) -> None:
        self.inner.__exit__(*error)
        self.into[:] = self.found


def all_positions(decoder: Decoder, given: Given, way: Way, places: int | None = None) -> tuple[Array, str]:
    """(the first output at every position, what is strange about the cache) of one way. Positions that it leaves out are 0.

    places: of each sequence, no call begins after so many; None: all are computed.
    """
    found, remark = None, ""
    for rows, where, logits, cache in walk(decoder, given, way, places=places):
        if found is None:
            found = np.zeros((*given.tokens.shape, logits.shape[-1]), logits.dtype)
        for index, row in enumerate(rows):
            kept = where[index] >= 0
            found[row, where[index][kept]] = logits[index][kept]
        remark = remark or (decoder.remark(cache, len(rows)) if cache is not None else "")
    assert found is not None  # a sequence has tokens
    return found, remark


def walk(
    decoder: Decoder,
    given: Given,
    way: Way,
    around: Around = lambda rows, where: nullcontext(),
    places: int | None = None,
) -> Iterator[tuple[Sequence[int], Array, Array, Any]]:
    """Compute sequences in one way. Yields (sequences, positions, first output, cache) of every call.

    around: makes the context of each call. places: no call begins after so many places of a sequence; None: all are computed.
    """
    length = given.tokens.shape[1]
    every = list(range(len(given.tokens)))
    for rows in [[row] for row in every] if way.alone else [every]:
        yield from _walk_together(decoder, given, way, rows, around, length if places is None else places)


def _walk_together(
    decoder: Decoder, given: Given, way: Way, rows: list[int], around: Around, places: int
) -> Iterator[tuple[Sequence[int], Array, Array, Any]]:
    length = given.tokens.shape[1]
    where = np.stack([_positions(way, row, length) for row in rows])
    grid = np.where(where >= 0, np.take_along_axis(given.tokens[rows], np.maximum(where, 0), 1), 0)
    cache = decoder.new_cache(way.cache, length) if way.cache else None
    done, turned = 0, False
    for size in way.sizes(length):
        if done > places:
            return
        if done >= length // 2 and not turned and (way.back or way.reorder):
            turned = True
            if way.back:
                before = decoder.marked(cache)
                wrong = np.ascontiguousarray(grid[:, : way.back])
                _, cache = decoder.call(wrong, cache, more=[each[rows] for each in given.more])
                cache = decoder.taken_back(cache, way.back, before)
            if way.reorder:
                order = list(range(len(rows)))[::-1]
                rows, where, grid = [rows[i] for i in order], where[order], grid[order]
                cache = decoder.reordered(cache, order)
        now = slice(done, done + size)
        positions = np.maximum(where[:, now], 0) if way.padding else None
        mask = (where[:, : done + size] >= 0).astype(np.int64) if way.padding else None
        with around(rows, where[:, now]):
            logits, cache = decoder.call(
                np.ascontiguousarray(grid[:, now]),
                cache,
                positions,
                mask,
                keep=bool(way.chunks),
                more=[each[rows] for each in given.more],
            )
        yield rows, where[:, now], logits, cache
        done += size


def _positions(way: Way, row: int, length: int) -> Array:
    """The position in its sequence of every place of a padded row, (length,); -1 for padding."""
    missing, places = way.missing(row, length), np.arange(length)
    if way.padding == "left":
        return np.maximum(places - missing, -1)
    return np.where(places < length - missing, places, -1)


def first_different(
    step: Sequence[LayerStep],
    place: int,
    truth: Sequence[LayerStep],
    whole: Sequence[LayerStep],
    position: int,
    part: str = "layer",
) -> str:
    """The first layer whose output differs from the exact one, in words; "" where none does, nor the output of the model.

    step: the calls of the step, in which the token has this place. truth, whole: those of the full pass in float64 and float32, in
    which it has this position. The floor of a layer is its error there in float32, at all positions. part: what a layer is called.
    """
    exact, single = _by_call(truth), _by_call(whole)
    before = ""
    for key, found in _by_call(step).items():
        if key not in exact or key not in single:
            continue
        if _differs(found.returned, exact[key].returned, single[key].returned, place, position):
            if not key[0]:
                return between(before, "") if before else ""
            inputs = (found.given, exact[key].given, single[key].given)
            given = all(each is not None for each in inputs) and _differs(*inputs, place, position)  # type: ignore[arg-type]
            return between(before, key[0]) if given else f"{part} `{key[0]}`"
        before = key[0]
    return ""


def _by_call(steps: Sequence[LayerStep]) -> dict[tuple[str, int], LayerStep]:
    """(layer, number of its call) -> the call, in order."""
    counts, found = Counter[str](), dict[tuple[str, int], LayerStep]()
    for each in steps:
        found[each.layer, counts[each.layer]] = each
        counts[each.layer] += 1
    return found


def _differs(found: Array, exact: Array, single: Array, place: int, position: int) -> bool:
    if place >= len(found) or position >= len(exact) or found.shape[1:] != exact.shape[1:]:
        return False
    with np.errstate(invalid="ignore"):
        floor = np.sqrt(np.mean((single - exact) ** 2) + UNIT**2 / 3 * np.mean(exact**2))
    if not np.isfinite(floor):  # such as a mask of infinities
        return False
    residual = np.sqrt(np.mean((found[place] - exact[position]) ** 2))
    return bool(residual > OWN_GROUP * floor) if np.isfinite(residual) else True
