"""Plants faults in the layers of any framework: a layer returns what torch's layer with the fault makes of the same inputs.

Everything else is the framework's own: what the layer is given, what is computed from its outputs, layouts and names.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from ..errors import Failed, Unsupported, XverifyError
from ..framework.capture import returned_key
from ..messages.reference import Fault, FaultyCalls, ListFaults
from ..processes.worker import Worker
from ..reference.layers import CAPTURED_CASE, Captured, LayerReplay
from ..weights import npz


class NotPlanted(XverifyError):
    """A fault cannot be planted in this layer of this port."""


@dataclass
class ReplacedCalls:
    """Plants faults in a port, and captures its layers with them.

    replay: has the process of the reference, which computes layers with faults.
    clean: the captured calls without a fault.
    """

    replay: LayerReplay
    port: Worker
    clean: Captured = field(init=False)

    def faults(self) -> list[Fault]:
        """Every fault of the catalogue, for the layers of the port that can be captured. Raises Unsupported where none can be."""
        known = self.replay.process.worker.ask(ListFaults())
        self.clean = self.replay.capture(self.port, self.port.folder / "clean-layers")
        called = {record.name for record in self.clean.reply.records if record.outputs}
        found = [fault for fault in known if fault.layer in called]
        if not found:
            raise Unsupported(
                f"no layer of {self.port.adapter.name} can be captured, so no fault can be planted in one; --task train plants "
                "mistakes of training code"
            )
        return found

    def capture(self, fault: Fault) -> Captured:
        """Capture the layers of the port with a fault.

        A later call of the layer may be given what an earlier one returned, so the layer is computed again until its inputs stay.
        Raises NotPlanted where the layer of the port is not the reference's layer alone.
        """
        captured = self.clean
        for _ in range(1 + len(_given(captured, fault.layer))):  # each time, at least one more call is right
            given, path = _given(captured, fault.layer), self.port.folder / "returned.npz"
            self._compute(fault, captured, path)
            captured = self.replay.capture(self.port, self.port.folder / "layers", path)
            self._check(fault, captured, path)
            if len(given) == 1 or _given(captured, fault.layer) == given:
                break
        return captured

    def _compute(self, fault: Fault, captured: Captured, path: Path) -> None:
        """Write what the layer returns with the fault for the inputs of these calls."""
        process, prepared = self.replay.process, self.replay.prepared
        question = FaultyCalls(
            layer=fault.layer,
            index=fault.index,
            port_layer=self._own_name(fault),
            folder=str(captured.folder),
            records=tuple(record for record in captured.reply.records if record.name == fault.layer),
            channels_last=captured.reply.channels_last,
            inputs=str(captured.inputs),
            case=CAPTURED_CASE,
            weights=str(prepared.weights),
            seed=process.request.seed,
            path=str(path),
        )
        try:
            process.worker.ask(question)
        except Failed as error:
            raise NotPlanted(str(error)) from None

    def _check(self, fault: Fault, captured: Captured, path: Path) -> None:
        """Raise NotPlanted unless the first call of the layer returned what it was to return."""
        wanted = npz.load_file(path)[returned_key(self._own_name(fault), 0, 0)]
        first = next((each for each in captured.reply.records if each.name == fault.layer and each.outputs), None)
        found = np.load(captured.folder / first.outputs[0]) if first else np.zeros(0)
        if found.shape != wanted.shape or not np.array_equal(found, wanted, equal_nan=True):
            raise NotPlanted(
                "what the layer returns cannot be replaced: in the port, it is several objects whose outputs are joined, or "
                "computes other layers, too, and the fault changes the shape"
            )

    def _own_name(self, fault: Fault) -> str:
        """What the port calls the layer of a fault."""
        return self.clean.matched.get(fault.layer, fault.layer)


def _given(captured: Captured, layer: str) -> list[list[bytes]]:
    """The contents of the input files of each call of a layer."""
    records = [record for record in captured.reply.records if record.name == layer]
    return [[(captured.folder / file).read_bytes() for file in record.inputs] for record in records]
