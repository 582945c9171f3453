"""The work that shows whether a model can be compared: repeated passes, repeated builds, and calls as users make them."""

from __future__ import annotations

import hashlib
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..framework import generators
from ..framework.capture import LayerCall, Recorder
from ..messages import soundness as messages
from ..messages.soundness import BuiltAgain, Repeated
from ..verdict.limits import UNIT, growth
from ..weights import npz
from ..weights.canonical import Array
from ..weights.names import rename_layers
from ..workload import probe
from .handlers import Group

ATTEMPTS = 8  # pairs of passes; a rare random operation may leave some pairs equal
LONG_SUM = 2**20  # terms; the order of the terms of such a sum may change from call to call
SHORT_SUM = (
    2**8
)  # the same, for the place of a difference in a model whose outputs are known to differ by more than rounding
FEW = 3  # names in a message
FEW_PASSES = 2  # on other inputs, between two on one
ROW = 2**12  # bytes of a row of the table whose sums tell arrays apart


@dataclass(frozen=True)
class Pass:
    """One captured pass. records: the calls of its layers. outputs: the model's outputs by name. folder: of the captured arrays."""

    records: Sequence[LayerCall]
    outputs: Mapping[str, Array]
    folder: Path


class Digests(Recorder):
    """A recorder that keeps the dtype and a digest of the ``sums`` of every array, and writes no file."""

    def _file(self, array: Array) -> str:
        digest = hashlib.blake2b(f"{array.dtype} {array.shape}".encode(), digest_size=16)
        for part in sums(array):
            digest.update(part.tobytes())
        return f"{array.dtype.name} {digest.hexdigest()}"


def sums(array: Array) -> tuple[Array, Array, Array]:
    """The sums of the bits of an array over the rows and over the columns of a table of it, and the rest that fills no row.

    They take a tenth of the time of a digest of all bits. Every change of one value changes a row and a column, and so does
    every exchange of two different ones.
    """
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    whole = flat.size // ROW * ROW
    table = flat[:whole].view(np.uint64).reshape(-1, ROW // 8)
    return table.sum(axis=0, dtype=np.uint64), table.sum(axis=1, dtype=np.uint64), flat[whole:]


class Soundness(Group):
    """Handlers of requests about repeated passes and calls."""

    def repeat(self, request: messages.Repeat) -> Repeated:
        """Run two passes and compare them. In the second one every generator of random numbers gives other numbers."""
        state, folder = self.state, Path(request.folder)
        seeds = list[str]()

        def other_numbers() -> AbstractContextManager[None]:
            return generators.other_numbers(lambda name: seeds.append(name + generators.line_in(state.source.folder)))

        model = self._float64_model(request) if request.float64 else state.model
        inputs = state.native_cases(request.inputs, request.float64)[request.case]
        folder.mkdir(exist_ok=True)
        with self._training(model, request):
            before = generators.states()
            found = self._pass(model, inputs, request.case, Digests(folder, state.plain_array))
            draws = generators.differ(before, generators.states())
            if draws:
                for models in state.replay_models.values():
                    models.draw_apart()
            precisions = tuple(self._other_precision(model, found)) if request.float64 else ()
            models = (model, model)
            place, share = self._compare(models, inputs, request.case, folder, found, request.random, other_numbers)
            operation = self._random_operation(model, inputs, request.case, folder) if place else ""
        seeded = seeds[0] if place and seeds else ""
        draws = draws or bool(seeds)
        return Repeated(place + (f" ({operation})" if operation else ""), share, precisions, seeded, draws)

    def _random_operation(self, model: Any, inputs: tuple[Any, ...], case: int, folder: Path) -> str:
        """The first operation of a pass that draws random numbers, with its line in the model's file; "" when not known."""
        source, found = self.state.source.folder, list[str]()
        operation = self.state.framework.random_operation(model, inputs, source)
        if operation:
            return operation
        with generators.watched(lambda name: found.append(name + generators.line_in(source))):
            self._pass(model, inputs, case, Digests(folder, self.state.plain_array))
        return found[0] if found else ""

    @contextmanager
    def _training(self, model: Any, request: messages.Repeat) -> Iterator[None]:
        """The model in training mode, where that is asked for; its running statistics are restored at the end."""
        if not request.training:
            yield
            return
        self.state.framework.disable_dropout(model)
        model.train()
        try:
            with self._without_iterations(model):
                yield
        finally:
            model.eval()
            self.state.write_weights(model, npz.OnDisk(Path(request.weights)))

    def _without_iterations(self, model: Any) -> AbstractContextManager[None]:
        """The context in which no pass in training mode changes the weights of the next one, as a spectral norm does."""
        if not self.state.computed:
            return nullcontext()
        from ..float64.parametrized import without_iterations

        return without_iterations(model)

    def _compare(
        self,
        models: tuple[Any, Any],
        inputs: tuple[Any, ...],
        case: int,
        folder: Path,
        first: Pass,
        random: bool = False,
        second_in: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> tuple[str, float]:
        """Where a pass of each of two models, or two passes of one, first differ, and by what share; ("", 0.0) when they agree.

        first: a pass of the first model with digests. Arrays are written only when the digests of the second pass differ.
        random: whether the outputs are known to differ by more than rounding.
        second_in: the context of the second pass.
        """
        with second_in():
            second = self._pass(models[1], inputs, case, Digests(folder, self.state.plain_array))
        if first.records == second.records and _same(first.outputs, second.outputs):
            return "", 0.0
        first = self._written_pass(models[0], inputs, case, folder / "first")
        for attempt in range(ATTEMPTS):
            with second_in():
                second = self._written_pass(models[1], inputs, case, folder / f"again-{attempt}")
            place, share = first_difference(first, second)
            if place:
                return place, share
        return first_difference(first, second, SHORT_SUM) if random else ("", 0.0)

    def _float64_model(self, request: messages.Repeat) -> Any:
        state = self.state
        if request.seed is not None:
            return state.replayed_models(request.weights, request.seed, request.training).float64_model
        model = state.framework.build(state.source, state.options, float64=True)
        state.write_weights(model, npz.OnDisk(Path(request.weights)))
        return model

    def _written_pass(self, model: Any, inputs: tuple[Any, ...], case: int, folder: Path) -> Pass:
        folder.mkdir()
        return self._pass(model, inputs, case, Recorder(folder, self.state.plain_array))

    def _pass(self, model: Any, inputs: tuple[Any, ...], case: int, recorder: Recorder) -> Pass:
        state = self.state
        layers, built = list(state.framework.layers(model)), list(state.framework.layers(state.model))
        if len(layers) != len(built):
            built = layers
        canonical = rename_layers(built, state.names)
        names = {  # Keras calls a layer that has no name re_lu in one build and re_lu_1 in the next
            own: canonical[known]
            for own, known in zip(layers, built)
            if known in canonical and not any(other.startswith(own + ".") for other in layers)
        }
        outputs = state.framework.capture(model, inputs, names, recorder)
        arrays = {key.split("/", 1)[1]: array for key, array in state.output_arrays(case, outputs).items()}
        return Pass(recorder.records, arrays, recorder.folder)

    def _other_precision(self, model: Any, found: Pass) -> Iterator[str]:
        """What is not float64: variables, results of layers, and outputs, one clause each. found: a pass with digests."""
        variables = {
            self.state.canonical_names.get(name, name): dtype
            for name, dtype in self.state.framework.precisions(model).items()
        }
        yield from _clauses("variable", variables)
        results = {call.name: file.split()[0] for call in found.records for file in call.outputs}
        yield from _clauses("layer", results)
        yield from _clauses("output", {name: array.dtype.name for name, array in found.outputs.items()})

    def build_again(self, request: messages.BuildAgain) -> BuiltAgain:
        """Build the model again, name the weights that a file or a fixed seed gives it, and run both models with the same weights.

        Random initialisers draw other values in the second build. Constant initialisers give one value, or two (an LSTM's bias
        with ones for its forget gate, an identity matrix), and are not counted.
        """
        state, framework, folder = self.state, self.state.framework, Path(request.folder)
        model, other = state.model, framework.build(state.source, state.options)
        folder.mkdir(exist_ok=True)
        kept = folder / "own-weights.npz"
        npz.save_file(framework.weights_of(model), kept)
        first, again = npz.OnDisk(kept), framework.weights_of(other)
        brought = [
            state.canonical_names[name]
            for name in first
            if name in again and np.array_equal(first[name], again[name]) and not _constant(first[name])
        ]
        computed = [
            state.canonical_names[name]
            for name in framework.own_buffers(model)
            if name in first and name in again and np.array_equal(first[name], again[name]) and not _fresh(first[name])
        ]
        try:
            state.write_weights(model, probe.Weights(state.shapes, seed=0))
            state.load_own(other, framework.weights_of(model))
            cases = state.native_cases(request.inputs)
            inputs = cases[request.case]
            found = self._pass(model, inputs, request.case, Digests(folder, state.plain_array))
            place, share = self._compare((model, other), inputs, request.case, folder, found)
            kept_place, kept_share = ("", 0.0) if place else self._after_others(model, cases, request.case, folder)
        finally:
            state.load_own(model, first)
            kept.unlink()
        return BuiltAgain(tuple(brought), place, share, kept_place, kept_share, tuple(computed))

    def _after_others(self, model: Any, cases: Sequence[tuple[Any, ...]], case: int, folder: Path) -> tuple[str, float]:
        """Where two passes on one case differ when passes on other cases are made in between; ("", 0.0) when they agree.

        A model that counts its calls may agree after some numbers of passes, so several are tried.
        """
        others = [each for number, each in enumerate(cases) if number != case][:FEW_PASSES]
        first = self._pass(model, cases[case], case, Digests(folder, self.state.plain_array))
        for number in range(len(others) + 1):
            try:
                for inputs in others[:number]:
                    self._pass(model, inputs, case, Digests(folder, self.state.plain_array))
            except Exception:  # another case may need what the one before returns, as the steps of a sequence do
                traceback.print_exc()
                return "", 0.0
            again = self._pass(model, cases[case], case, Digests(folder, self.state.plain_array))
            if first.records != again.records or not _same(first.outputs, again.outputs):
                return self._place_after_others(model, (cases[case], *others), case, folder)
        return "", 0.0

    def _place_after_others(
        self, model: Any, cases: Sequence[tuple[Any, ...]], case: int, folder: Path
    ) -> tuple[str, float]:
        """As ``_after_others`` where digests differ; ("", 0.0) when the difference is rounding. cases: the first is judged."""
        first = self._written_pass(model, cases[0], case, folder / "before-others")
        for attempt in range(ATTEMPTS):
            for inputs in cases[1 : 1 + attempt % len(cases)]:
                self._pass(model, inputs, case, Digests(folder, self.state.plain_array))
            again = self._written_pass(model, cases[0], case, folder / f"after-others-{attempt}")
            place, share = first_difference(first, again)
            if place:
                return place, share
        return "", 0.0

    def call_as_user(self, request: messages.CallAsUser) -> bool:
        """Call the model without xverify's arguments. A model that cannot be called so fails loudly for its users, too."""
        state = self.state
        call = state.runner.user_call(state.model)
        if call is None:
            return False
        try:
            with state.context():
                outputs = call(*state.cases[request.case])
                state.runner.wait(outputs)
                arrays = state.output_arrays(request.case, outputs)
        except Exception:
            traceback.print_exc()
            return False
        npz.save_file(arrays, Path(request.path))
        return True


# -- comparing two passes -----------------------------------------------------------------------------------------------


def first_difference(first: Pass, second: Pass, terms: int = LONG_SUM) -> tuple[str, float]:
    """Where two passes first differ by more than rounding, and the share by which they do; ("", 0.0) when they agree.

    terms: length of the longest sum whose rounding is no difference.
    """
    before = ""
    for one, other in zip(first.records, second.records):
        if (one.name, one.call) != (other.name, other.call):
            return between(before, one.name), math.inf
        share = _largest(first, one.inputs, second, other.inputs, terms)
        if share:
            return between(before, one.name), share
        share = _largest(first, one.outputs, second, other.outputs, terms)
        if share:
            return f"layer `{one.name}`", share
        before = one.name
    if len(first.records) != len(second.records):
        return between(before, ""), math.inf
    shares = [
        change(first.outputs[name], second.outputs[name], terms) if name in second.outputs else math.inf
        for name in first.outputs
    ]
    share = max(shares, default=0.0)
    return (between(before, ""), share) if share else ("", 0.0)


def between(before: str, after: str) -> str:
    """Words for the glue code between two layers. "" stands for the start of the model, or for its end."""
    if before and after:
        return f"the glue code between `{before}` and `{after}`"
    if before or after:
        return f"the glue code after `{before}`" if before else f"the glue code before `{after}`"
    return "the model"


def _largest(first: Pass, files: Sequence[str], second: Pass, others: Sequence[str], terms: int) -> float:
    if len(files) != len(others):
        return math.inf
    pairs = zip(files, others)
    return max(
        (
            change(np.load(first.folder / a, mmap_mode="r"), np.load(second.folder / b, mmap_mode="r"), terms)
            for a, b in pairs
        ),
        default=0.0,
    )


def change(one: Array, other: Array, terms: int = LONG_SUM) -> float:
    """rms of the difference of two arrays / rms of their values; 0.0 when the difference can be rounding.

    In float64, a difference below the unit roundoff of float32 is neither a fault nor visible in a noise floor. In float32, a sum
    of ``terms`` terms in another order changes by ``growth(terms)`` unit roundoffs. Whole numbers have no rounding.
    """
    if one.shape != other.shape or one.dtype != other.dtype:
        return math.inf
    if one.dtype.kind != "f":
        return float(np.mean(one != other)) if one.size else 0.0
    finite = np.isfinite(one)
    if not np.array_equal(finite, np.isfinite(other)):
        return math.inf
    a, b = one[finite].astype(np.float64), other[finite].astype(np.float64)
    if not a.size or np.array_equal(a, b):
        return 0.0
    size, difference = (math.sqrt(float(np.mean(np.square(values)))) for values in (a, a - b))
    allowed = UNIT if one.dtype.itemsize >= 8 else growth(terms) * float(np.finfo(one.dtype).eps) / 2
    share = difference / size if size else math.inf
    return share if share > allowed else 0.0


def _same(first: Mapping[str, Array], second: Mapping[str, Array]) -> bool:
    if first.keys() != second.keys():
        return False
    return all(bool(np.array_equal(array, second[name])) for name, array in first.items())


def _clauses(what: str, dtypes: Mapping[str, str]) -> Iterator[str]:
    """One clause for each floating dtype that is not float64: ``1 variable (fc.weight) in float32``. dtypes: name -> dtype."""
    for dtype in sorted({each for each in dtypes.values() if "float" in each and each != "float64"}):
        names = [name for name, each in dtypes.items() if each == dtype]
        plural = "s" if len(names) > 1 else ""
        yield f"{len(names)} {what}{plural} ({', '.join(names[:FEW])}{', …' if len(names) > FEW else ''}) in {dtype}"


def _fresh(array: Array) -> bool:
    """Whether all values of an array are zeros, or all are ones, as those of a state before the first call."""
    return not array.any() or bool((array == 1).all())


def _constant(array: Array) -> bool:
    """Whether an array has at most two different values, by at most 4096 of them."""
    values = array.reshape(-1)
    return len(np.unique(values[:: max(1, values.size // 4096)])) <= 2
