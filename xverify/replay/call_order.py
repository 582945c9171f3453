"""Finds the captured call that corresponds to a call of the reference, where a port calls a layer in another order.

Two towers that share a layer may be written in either order. The number of a call then says nothing, but the tensors that the
call was given do: the reference's glue code computes them from earlier captured outputs.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from ..float64.linear import called_by_weights, owners_of
from ..float64.replaced import hooked
from ..float64.stepping import Models
from ..float64.structures import as_float32, flatten
from ..framework.capture import LayerCall
from .layout import SAMPLE, Axes, distance, nearest, sampled
from .passed_on import PassedOn
from .tensors import Capture, rms

NEAR = 1e-3  # relative distance; a call was given these tensors only when none of them is further away
MARGIN = 100.0  # a later call is chosen only when it is nearer by this factor than the next one in order
MOST_CALLS = 64  # calls of one layer that are searched

MARGIN_OF_FAULTS = 2.0  # the same factor where the order is known to differ, and a fault moves the tensors away

CallKey = tuple[str, int]  # (layer, call)


class CallMatcher:
    """Assigns the captured calls of each layer to the calls of the reference, each at most once.

    Calls are assigned in order. Another order is assumed only where the next captured call was given other tensors than the
    reference's call, and exactly one later call was given the same. Where a port calls a layer less often than the reference,
    for example because it calls a function instead, a call that was given other tensors counts as not captured.

    count: function that returns the number of the reference's calls of each layer; it is called only when it is needed.
    assigned: (layer, call of the reference) -> the captured call.
    passed_on: the captured outputs that the reference was given.
    axes: in which order the axes of captured tensors may be.
    in_order: whether no call of another order has been found so far.
    """

    def __init__(
        self, capture: Capture, count: Callable[[], Mapping[str, int]], passed_on: PassedOn, axes: Axes
    ) -> None:
        self.capture, self.count, self.passed_on, self.axes = capture, count, passed_on, axes
        self.assigned: dict[CallKey, LayerCall] = {}
        self.in_order = True
        self.captured = Counter(name for name, _ in capture.records)
        self._unused: dict[str, list[LayerCall]] = defaultdict(list)
        for (name, _), record in sorted(capture.records.items(), key=lambda item: item[0]):
            self._unused[name].append(record)

    def take(self, name: str, call: int, args: Any, layer: nn.Module) -> LayerCall | None:
        """The captured call for a call of the reference; None when it was not captured.

        args: the arguments that the reference's glue code computes, in float64.
        """
        left = self._unused[name]
        if not left:
            return None
        chosen = self._nearest_call(left[:MOST_CALLS], flatten(args), layer)
        if chosen is None:
            return None
        self.assigned[name, call] = left[chosen]
        return left.pop(chosen)

    def _nearest_call(self, calls: list[LayerCall], args: list[Tensor], layer: nn.Module) -> int | None:
        """The place of the call that was given these tensors; 0 unless another one was, beyond doubt. None: see the class."""
        if self._distance(calls[0], args, layer, SAMPLE) <= NEAR:
            return 0
        found = sorted((self._distance(call, args, layer), place) for place, call in enumerate(calls))
        (best, place), second = found[0], found[1][0] if len(found) > 1 else math.inf
        if best <= NEAR and best * MARGIN <= second:
            self.in_order = self.in_order and place == 0
            return place
        if not self.in_order and best * MARGIN_OF_FAULTS <= second:
            return place
        name = calls[0].name
        return None if self.captured[name] < self._number_of_calls[name] else 0

    @cached_property
    def _number_of_calls(self) -> Counter[str]:
        return Counter(self.count())

    def _distance(self, call: LayerCall, args: list[Tensor], layer: nn.Module, sample: int = 0) -> float:
        """The largest relative distance of a captured input from the reference's; infinite when a shape does not fit.

        sample: number of values that are compared of each tensor; 0: all.
        """
        if len(self.passed_on.among(args, call.inputs)) == len(args):
            return 0.0
        captured = self.capture.load_all(call.inputs)
        worst = 0.0
        for exact in args:
            same_kind = [tensor for tensor in captured if tensor.is_floating_point() == exact.is_floating_point()]
            found = nearest(same_kind, exact, layer, self.capture.channels_last, self.axes)
            if found is None:
                return math.inf
            captured = [other for other in captured if other is not found[0]]
            mine, right = (sampled(tensor, sample) for tensor in (found[1], exact))
            size = rms(right) * math.sqrt(max(1, right.numel()))
            apart = distance(mine, right)
            worst = max(worst, apart / size if size else (math.inf if apart else 0.0))
        return worst if math.isfinite(worst) else math.inf

    def order(self) -> dict[str, tuple[int, ...]]:
        """Layer -> the captured call of each assigned call of the reference, for layers that are called in another order."""
        by_layer: dict[str, dict[int, int]] = defaultdict(dict)
        for (name, call), record in self.assigned.items():
            by_layer[name][call] = record.call
        orders = {name: tuple(calls[call] for call in sorted(calls)) for name, calls in by_layer.items()}
        return {name: order for name, order in orders.items() if list(order) != sorted(order)}

    def notes(self) -> Iterator[str]:
        """One sentence for each layer that the port calls in another order."""
        for name, order in self.order().items():
            numbers = ", ".join(str(call + 1) for call in order)
            yield (
                f"the port calls {name} in another order: its calls were compared in the order {numbers}, by the tensors that "
                "each was given"
            )


def count_calls(models: Models, inputs: Sequence[Tensor]) -> Counter[str]:
    """The number of calls of each layer in a pass of the reference. The models stay as they are.

    inputs: the inputs of the pass.
    """
    counted: Counter[str] = Counter()
    model = models.float32_model
    statistics = {name: buffer.clone() for name, buffer in model.named_buffers()}
    counting = hooked(
        layer.register_forward_pre_hook(lambda *_, name=name: counted.update([name]))
        for name, layer in models.float32_layers.items()
    )
    try:
        with counting, torch.no_grad(), called_by_weights(owners_of(model)):
            model(*(as_float32(tensor).clone() for tensor in inputs))
    finally:
        for name, buffer in model.named_buffers():
            buffer.copy_(statistics[name])
    return counted


def in_reference_order(capture: Capture, calls: CallMatcher, left_out: frozenset[str] = frozenset()) -> Capture:
    """The same capture with its calls numbered as in the reference.

    left_out: layers whose calls are left out.
    """
    records = {key: record for key, record in calls.assigned.items() if key[0] not in left_out}
    return Capture(capture.folder, capture.channels_last, records, capture.mapped)
