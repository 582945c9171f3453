"""Replay in float64: was every layer computed right, from what that layer was given?

The reference model runs over what another framework captured. Each layer gets the framework's own captured inputs, is compared
with the framework's own output, and hands that output on. So one pass judges every layer alone, whatever came before it, and
the code between layers too: what the reference's additions, reshapes and products make of the captured outputs must be what the
next layer was given.

A layer's floor, which ``rule`` divides by, is measured on its inputs: once more in float64 with every value moved by a unit of
rounding, and in float32; where a layer treats its items alike, on one item. The code between layers mostly agrees to the bit and
needs no floor. Where it does not, three passes run in step, a layer at a time: exact, moved, and in float32. A layer that was not
captured runs in each pass by itself, as part of the code between layers; so a replay of no capture at all gives the model's
float64 outputs and the floor of a whole model.

Needs torch, which is the reference.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..verdict import limits as rule
from ..verdict.limits import UNIT, Finding
from .faults import catalogue
from .faults.fault import PortFault
from .stepping import COPIES, Halt, Models, Noise, Pass, as_float32, as_float64, filled, flatten, reduction, replace
from .tensors import SPATIAL, Capture, Floors, channel_axis, describe, equal, fit, forms, judge, mean_squares, stretches

OUTPUT = "(output)"
MEASURED_CALLS = 3  # of a layer that is called again and again; its later calls are judged by the same floors
# Layers that treat the items of a batch, axis 0, alike and apart.
BY_ITEM = (*SPATIAL, nn.Linear, nn.LayerNorm, nn.GELU, nn.SiLU, nn.Hardswish, nn.Hardsigmoid, nn.Sigmoid, nn.Tanh)
ENOUGH_VALUES = 32  # of each channel, for a floor measured on one item
SLACK = 1e-5  # of a slope, which is fitted to float32
ROUNDED_SUMS = "its mean and variance are sums in float32 that lose digits, as E[x²] - E[x]² in one pass does"


class NeedsFloor(Exception):
    """Code between layers does not agree to the bit, and one pass alone cannot tell how much of that is rounding."""


def replayed(
    models: Models,
    capture: Capture,
    inputs: Sequence[Tensor],
    outputs: Mapping[str, np.ndarray | None],
    planted: tuple[str, int] | None = None,
) -> Replay:
    """The replay of a capture, in one pass, or in three where one does not tell. outputs: what the framework returned, by name."""
    for alone in (True, False):
        done = Replay(models, capture, planted, alone)
        try:
            done.finish(outputs, done.run(inputs))
            break
        except NeedsFloor:
            pass
    return done


class Replay:
    """One replay. ``findings``: in the order of computation. missing: calls of layers that were not captured.

    planted: a fault (layer, index in catalogue.plantable_faults) that the capture is known to have. ``visible`` is then by how many floors
    it moves the layer's exact output: what no test could see is not missed. alone: one pass, without floors of the code between
    layers; raises NeedsFloor where one is needed.
    """

    def __init__(
        self, models: Models, capture: Capture, planted: tuple[str, int] | None = None, alone: bool = False
    ) -> None:
        self.models, self.capture, self.planted, self.alone = models, capture, planted, alone
        self.visible = 0.0
        self.noise = Noise(models.seed)
        self.findings: list[Finding] = []
        self.compared: Counter[str] = Counter()
        self.missing: Counter[str] = Counter()
        self.stopped = ""
        self.fits = 0  # of the inputs of the layer at hand
        self.shares: dict[str, list[list[tuple[np.ndarray, np.ndarray]]]] = {}
        self.explained: dict[str, dict[str, Any]] = {}
        self.likely: str | None = None
        self.searches = 3  # for that many layers the catalogue is searched in vain

    def run(self, inputs: Sequence[Tensor], visit: Callable[[str, Any], None] | None = None) -> list[Floors]:
        """Replay over these inputs; returns the exact outputs of the model, with their floors, [] where it had to stop.

        visit: called with (layer, arguments) at the first calls of each layer that was not captured, in float64.
        """
        float64_inputs = [as_float64(tensor) for tensor in inputs]
        self.visit = visit
        self.items = float64_inputs[0].shape[0] if float64_inputs and float64_inputs[0].dim() else 0
        self.passes = [Pass(self.models.float64_model, float64_inputs)]
        if not self.alone:
            self.passes += [
                Pass(self.models.float64_model, [self.noise.moved(tensor) for tensor in float64_inputs]),
                Pass(self.models.float32_model, [as_float32(tensor) for tensor in inputs]),
            ]
        with torch.no_grad():
            return self._steps()

    def _steps(self) -> list[Floors]:
        replies: list[Any] = [None] * len(self.passes)
        while True:
            steps: list[Halt] = [each.switch(reply) for each, reply in zip(self.passes, replies)]
            first = steps[0]
            for step in steps:
                if step.error is not None:
                    if not any(finding.reason for finding in self.findings):
                        raise step.error
                    return []  # after a tensor of another shape, the reference's own code may not go on
            if any((step.layer, step.call) != (first.layer, first.call) for step in steps):
                self.stopped = f"rounding alone changes what is computed after {first.layer or OUTPUT}"
                return []
            if not first.layer:
                return self._floors([step.args for step in steps])
            record = self.capture.records.get((first.layer, first.call))
            if record is not None and not record["outputs"]:
                record = None  # the framework broke off within this layer
            answer = self._by_itself(steps) if record is None else self._layer(steps, record)
            if answer is None:
                return []
            replies = answer

    def _by_itself(self, steps: list[Halt]) -> list[Any]:
        """A layer that was not captured: each pass computes its own."""
        name = steps[0].layer
        self.missing[name] += 1
        layer, twin = self.models.layers[name], self.models.float32_layers[name]
        size = UNIT if isinstance(layer, COPIES) else UNIT * rule.growth(reduction(layer, flatten(steps[0].args)))
        if self.visit is not None and steps[0].call < MEASURED_CALLS:
            self.visit(name, replace(steps[0].args, Tensor.clone))
        exact = self.models.compute(layer, steps[0].args)
        if self.alone:
            return [exact]
        if isinstance(layer, COPIES):
            moved = self.models.compute(layer, steps[1].args)
        else:
            # On copies: an argument may be a weight of the model.
            args = replace(steps[1].args, lambda tensor: self.noise.moved(tensor, size))
            versions = [tensor._version for tensor in flatten(args)]
            moved = replace(self.models.compute_moved(layer, args, self.noise, size), self.noise.moved)
            for original, copy, version in zip(flatten(steps[1].args), flatten(args), versions):
                if copy._version != version:  # an in-place layer
                    original.copy_(copy)
        return [exact, moved, self.models.compute(twin, steps[2].args)]

    # -- a captured layer ---------------------------------------------------------------------------------------------

    def _layer(self, steps: list[Halt], record: Mapping[str, Sequence[str]]) -> list[Any] | None:
        """Judge what the layer was given and what it returned; what each pass goes on with."""
        name, call = steps[0].layer, steps[0].call
        layer = self.models.layers[name]
        given = self._inputs(steps, record["inputs"])
        args = filled(steps[0].args, [tensor.clone() if may_overwrite(layer) else tensor for tensor in given])
        versions = [tensor._version for tensor in flatten(args)]
        result = self.models.compute(layer, args)
        in_place = [tensor._version != version for tensor, version in zip(flatten(args), versions)]
        floors = self._measure(name, filled(steps[0].args, given), flatten(result))
        if self.planted is not None and self.planted[0] == name:
            self._see(layer, self.planted[1], filled(steps[0].args, given), floors[0])
        self.compared[name] += 1
        returned = []
        theirs = [self.capture.load(file) for file in record["outputs"]]
        for index, floor in enumerate(floors[: len(theirs)]):
            found = self._nearest(theirs, floor.exact, layer)
            if found is None and index:
                break  # a state that the framework keeps to itself
            if found is None and self.fits == 0:
                # It works on another layout altogether, as time before batch: then it belongs to the code between the others.
                self.compared[name] -= 1
                return self._by_itself(steps)
            if found is None:
                self._other_shape(name, call, index, theirs[0], floor.exact)
                self._explain(self.findings[-1], theirs[0], floor, filled(steps[0].args, given))
                return None
            theirs = [other for other in theirs if other is not found[0]]
            finding = self._judge(name, call, index, "output", found[1], floor, layer, reduction(layer, given))
            returned.append(found[1])
            if finding.verdict != "EQUAL" and index == 0:
                self._explain(finding, found[1], floor, filled(steps[0].args, given))
        returned += [floor.exact for floor in floors[len(returned) :]]
        replies = [[as_float64(tensor) for tensor in returned]]
        if not self.alone:
            replies += [
                [
                    self.noise.move_(tensor.to(torch.float64, copy=True) if tensor.is_floating_point() else tensor)
                    for tensor in returned
                ],
                [as_float32(tensor) for tensor in returned],
            ]
        for step, reply in zip(steps, replies):
            for tensor, changed in zip(flatten(step.args), in_place):
                if changed:  # whoever else holds the input of an in-place layer sees its result
                    tensor.copy_(reply[0])
        return [filled(result, reply) for reply in replies]

    def _inputs(self, steps: list[Halt], files: Sequence[str]) -> list[Tensor]:
        """What the framework gave the layer, as the reference takes it, in float64; its own where nothing was captured.

        Each is compared with what the reference's code makes of the outputs captured before.
        """
        name, call = steps[0].layer, steps[0].call
        layer = self.models.layers[name]
        theirs = [self.capture.load(file) for file in files]
        result = []
        self.fits = 0
        for index, values in enumerate(zip(*(flatten(step.args) for step in steps))):
            own = values[0]
            alike = [tensor for tensor in theirs if tensor.is_floating_point() == own.is_floating_point()]
            found = self._nearest(alike, own, layer)
            if found is not None:
                tensor, fitted = found
                theirs = [other for other in theirs if other is not tensor]
                self.fits += 1
                if equal(own, fitted):
                    kind = type(layer).__name__
                    self.findings.append(Finding(name, call, index, kind, "input", 0.0, 0.0, 1, 0.0, 0.0, 0.0))
                else:
                    whole = not own.is_floating_point()  # numbers, which have no rounding
                    floor = Floors(own, None, None) if whole else self._floor(values, channel_axis(layer, own.dim()))
                    self._judge(name, call, index, "input", fitted, floor, layer)
                exactly = own.is_floating_point() and all(
                    torch.equal(a, b.double()) for a, b in stretches(own, fitted, axis=-1)
                )
                result.append(own if exactly else as_float64(fitted))
            else:
                # Nothing captured, or what another division of the work gives: an image that was padded before. The layer is
                # then judged together with the code before it.
                result.append(own)
        return result

    def _nearest(self, theirs: list[Tensor], own: Tensor, layer: nn.Module) -> tuple[Tensor, Tensor] | None:
        """Which captured tensor this is, and it in the reference's layout; of several with its shape, the nearest.

        Frameworks differ in the order in which they pass the states of a cell.
        """
        fitting = [
            (tensor, form) for tensor in theirs for form in forms(tensor, own.shape, layer, self.capture.channels_last)
        ]
        if len(fitting) < 2:
            return fitting[0] if fitting else None
        return min(fitting, key=lambda pair: float(torch.dist(pair[1].double(), own.double())))

    def _measure(self, name: str, args: Any, exact: list[Tensor]) -> list[Floors]:
        """The floors of a layer's outputs on these inputs. After some calls of a layer they are known, relative to its size."""
        layer, twin = self.models.layers[name], self.models.float32_layers[name]
        earlier = self.shares.get(name, [])
        if len(earlier) >= MEASURED_CALLS and all(len(shares) == len(exact) for shares in earlier):
            return [self._known(y, [shares[i] for shares in earlier], layer) for i, y in enumerate(exact)]
        if isinstance(layer, COPIES):
            return [Floors(y, None, None) for y in exact]
        axes = [channel_axis(layer, y.dim()) for y in exact]
        one = self._treats_apart(layer, args, exact, axes)
        if one:
            args = replace(args, lambda tensor: tensor[:1])
        parts = [y[:1] if one else y for y in exact]
        moved = flatten(self.models.compute_moved(layer, replace(args, self.noise.moved), self.noise, UNIT))
        changes = [mean_squares(y, axis, exact=x) for x, y, axis in zip(parts, moved, axes)]
        del moved
        copy = may_overwrite(layer)
        float32_outputs = flatten(
            self.models.compute(twin, replace(args, lambda t: as_float32(t).clone() if copy else as_float32(t)))
        )
        errors = [mean_squares(y, axis, exact=x) for x, y, axis in zip(parts, float32_outputs, axes)]
        del float32_outputs
        if not all(y.is_floating_point() and y.dim() for y in exact):
            return [Floors(*each) for each in zip(exact, changes, errors)]
        sizes = [float(mean_squares(y, axis).mean()) or 1.0 for y, axis in zip(parts, axes)]
        self.shares.setdefault(name, []).append([(d / size, e / size) for d, e, size in zip(changes, errors, sizes)])
        if one:
            return [self._known(y, [share], layer) for y, share in zip(exact, self.shares[name][-1])]
        return [Floors(*each) for each in zip(exact, changes, errors)]

    def _treats_apart(self, layer: nn.Module, args: Any, exact: list[Tensor], axes: list[int]) -> bool:
        """Whether a floor measured on one item of the batch, in proportion to its size, holds for all of it."""
        if _is_training_norm(layer) or not isinstance(layer, BY_ITEM):
            return False
        tensors = [*flatten(args), *exact]
        if not all(tensor.dim() > 1 and tensor.is_floating_point() for tensor in tensors):
            return False
        items = {tensor.shape[0] for tensor in tensors}
        channels = [y.shape[axis] for y, axis in zip(exact, axes)]
        return items == {self.items} and all(y[0].numel() >= ENOUGH_VALUES * count for y, count in zip(exact, channels))

    def _known(self, exact: Tensor, shares: Sequence[tuple[np.ndarray, np.ndarray]], layer: nn.Module) -> Floors:
        """Floors from earlier calls; over all channels, where their number changes from call to call."""
        if len({share[0].shape for share in shares}) > 1:
            shares = [(moved.mean(keepdims=True), own.mean(keepdims=True)) for moved, own in shares]
        size = mean_squares(exact, channel_axis(layer, exact.dim()))
        moved, own = (np.broadcast_to(np.mean(parts, axis=0) * size.mean(), size.shape) for parts in zip(*shares))
        return Floors(exact, moved, own, size)

    def _floors(self, values: list[Any]) -> list[Floors]:
        """The floors of what the passes hold; one alone knows of none."""
        if self.alone:
            return [Floors(each, None, None) for each in flatten(values[0])]
        return [self._floor(each, each[0].dim() - 1) for each in zip(*map(flatten, values))]

    def _floor(self, values: Sequence[Tensor], axis: int) -> Floors:
        if self.alone:
            raise NeedsFloor
        exact, moved, own = values
        return Floors(exact, mean_squares(moved, axis, exact=exact), mean_squares(own, axis, exact=exact))

    def finish(self, outputs: Mapping[str, np.ndarray | None], exact: Sequence[Floors]) -> None:
        """Compare what the framework returned with what the reference's code makes of the last layers' captured outputs."""
        for index, ((name, array), floor) in enumerate(zip(outputs.items(), exact)):
            if array is not None and array.shape == tuple(floor.exact.shape):
                theirs = torch.from_numpy(array)
                if self.alone and not equal(floor.exact, theirs):
                    raise NeedsFloor
                self.findings.append(
                    judge(f"{OUTPUT} {name}", 0, index, "", "input", theirs, floor, 1, max(0, theirs.dim() - 1))
                )

    def report(self) -> dict[str, Any]:
        """The findings as plain values, and how many calls of which layers were compared."""
        return {
            "findings": [asdict(finding) for finding in self.findings],
            "compared": {name: calls for name, calls in self.compared.items() if calls},
            "missing": dict(self.missing),
            "explained": self.explained,
            "visible": self.visible,
            "stopped": self.stopped,
        }

    # -- findings -----------------------------------------------------------------------------------------------------

    def _judge(
        self,
        name: str,
        call: int,
        index: int,
        what: str,
        theirs: Tensor,
        floor: Floors,
        layer: nn.Module,
        terms: int = 1,
    ) -> Finding:
        axis = channel_axis(layer, theirs.dim())
        finding = judge(name, call, index, type(layer).__name__, what, theirs, floor, terms, axis)
        self.findings.append(finding)
        return finding

    def _explain(self, finding: Finding, theirs: Tensor, floor: Floors, args: Any) -> None:
        """Look for what the layer computes instead: the entry of the catalogue that brings it under the limit."""
        name = finding.layer
        if name in self.explained or self.searches == 0:
            return
        layer = self.models.layers[name]
        entries = list(catalogue.explanatory_faults(layer))
        if self.likely is not None:  # what one layer does, the next of its kind will do
            entries.sort(key=lambda entry: entry.kind != self.likely)
        best: tuple[float, PortFault] | None = None
        for entry in entries:
            value = self._instead(layer, entry, args)
            if value is None or tuple(value.shape) != tuple(theirs.shape):
                fitted = None if value is None else fit(theirs, value.shape, layer, self.capture.channels_last)
                if value is None or fitted is None:
                    continue
            else:
                fitted = theirs
            same = value.shape == floor.exact.shape
            accepted = ("EQUAL",) if same else ("EQUAL", "DRIFT")  # the floor of another shape was not measured
            moved = (floor.moved if same else None, floor.own if same else None)
            kind, terms = finding.kind, reduction(layer, flatten(args))
            found = judge(
                name, 0, 0, kind, "output", fitted, Floors(value, *moved), terms, channel_axis(layer, value.dim())
            )
            if found.verdict in accepted and (best is None or found.ratio < best[0] / 2):
                best = found.ratio, entry
                if found.ratio < 1.0:
                    break
        if best is not None:
            self.likely = best[1].kind
            self.explained[name] = {"kind": best[1].kind, "says": best[1].says, "rounding": best[1].rounding}
            return
        if _is_training_norm(layer) and self._rounded_sums(layer, finding, theirs, floor, args):
            return
        self.searches -= 1
        if (said := describe(theirs, floor.exact)) is not None:
            self.explained[name] = {"kind": said[0], "says": said[1], "rounding": False}

    def _rounded_sums(self, layer: Any, finding: Finding, theirs: Tensor, floor: Floors, args: Any) -> bool:
        """Whether a batch norm in training is right but for mean and variance, each off by what a long sum in float32 may lose.

        Then every channel is the exact one, scaled and shifted. A sum of n terms loses at most n units of rounding (Higham 2002,
        4.2), so E[x²] - E[x]² loses 3n + 2 units of E[x²], which may be all of a variance, but for eps.
        """
        exact, x = floor.exact, as_float64(flatten(args)[0])
        if theirs.shape != exact.shape or not bool(torch.isfinite(theirs).all()):
            return False
        axes = [axis for axis in range(exact.dim()) if axis != 1]
        y, given = theirs.double(), exact
        apart = given - given.mean(axes, keepdim=True)
        spread = apart.square().mean(axes, keepdim=True)
        slope = ((y - y.mean(axes, keepdim=True)) * apart).mean(axes, keepdim=True) / spread.clamp(min=1e-300)
        shift = y.mean(axes, keepdim=True) - slope * given.mean(axes, keepdim=True)
        plain = x.var(axes, unbiased=False, keepdim=True)
        variance, terms = plain + layer.eps, x.numel() // x.shape[1]
        least, most = slopes(x, axes, layer.eps)
        weight = (spread * variance / plain.clamp(min=1e-300)).sqrt()
        size = (x.square().mean(axes, keepdim=True) / variance).sqrt()
        moved = (slope - 1).abs() * given.mean(axes, keepdim=True).abs() + slope * weight * UNIT * (terms + 4) * size
        if bool(((slope < least) | (slope > most) | (shift.abs() > moved)).any()):
            return False
        axis = channel_axis(layer, exact.dim())
        fitted = Floors(slope * given + shift, floor.moved, floor.own)
        if judge(finding.layer, 0, 0, finding.kind, "output", theirs, fitted, finding.terms, axis).verdict != "EQUAL":
            return False
        self.explained[finding.layer] = {"kind": "rounded sums", "says": ROUNDED_SUMS, "rounding": True}
        return True

    def _see(self, layer: nn.Module, index: int, args: Any, floor: Floors) -> None:
        changed = self._instead(layer, catalogue.plantable_faults(layer)[index], args)
        if changed is None or changed.shape != floor.exact.shape:
            self.visible = math.inf
        else:
            found = judge(
                "", 0, 0, "", "", changed, floor, reduction(layer, flatten(args)), channel_axis(layer, changed.dim())
            )
            self.visible = max(self.visible, found.ratio, found.channel_ratio)

    def _instead(self, layer: nn.Module, entry: PortFault, args: Any) -> Tensor | None:
        copies = replace(args, Tensor.clone)
        try:
            result = entry.forward(layer, self.models.forwards[layer], *copies[0], **copies[1])
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError, AssertionError, NotImplementedError):
            return None  # the entry is no way to compute a layer of this form
        found = flatten(result)
        return found[0] if found else None

    def _other_shape(self, name: str, call: int, index: int, theirs: Tensor, mine: Tensor) -> None:
        kind = type(self.models.layers[name]).__name__
        reason = f"output has shape {tuple(theirs.shape)}, the reference {tuple(mine.shape)}"
        self.findings.append(Finding(name, call, index, kind, "output", math.inf, math.inf, reason=reason))


def slopes(x: Tensor, axes: Sequence[int], eps: float) -> tuple[Tensor, Tensor]:
    """Least and most, by channel, of an exact standard deviation over one of which E[x²] - E[x]² has lost 3n + 2 units of E[x²]."""
    variance = x.var(list(axes), unbiased=False, keepdim=True) + eps
    lost = UNIT * (3 * (x.numel() // x.shape[1]) + 2) * x.square().mean(list(axes), keepdim=True) / variance
    return (1 + lost).rsqrt() * (1 - SLACK), torch.maximum(1 - lost, eps / variance).rsqrt() * (1 + SLACK)


def _is_training_norm(layer: nn.Module) -> bool:
    return isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.training


def may_overwrite(layer: nn.Module) -> bool:
    """Whether the layer may compute in place."""
    return bool(getattr(layer, "inplace", False)) or not type(layer).__module__.startswith("torch.nn.")
