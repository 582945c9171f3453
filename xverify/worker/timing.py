"""What a worker does on the clock, and the untimed pass that captures its layers."""

from __future__ import annotations

import traceback
from itertools import repeat
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import SubjectError, first_line
from ..framework.capture import Recorder
from ..weights import npz
from ..weights.names import rename_layers
from . import messages
from .messages import Block, Captured, GraphsCounted, Prepared, Timed, Warmed
from .state import Handlers, State


def time_calls(state: State, case: int, calls: int) -> tuple[float, Any]:
    """(seconds of so many calls on one case, the outputs of the last one). Nothing else happens between the clock's looks."""
    call, wait, clock, inputs = state.call, state.framework.wait, state.clock, state.cases[case]
    outputs: Any = ()
    wait(())
    start = clock()
    for _ in repeat(None, calls):
        outputs = call(*inputs)
        wait(outputs)
    wait(())
    return clock() - start, outputs


class Timing:
    """Handlers of requests about one mode of the model."""

    def __init__(self, state: State) -> None:
        self.state = state

    def handlers(self) -> Handlers:
        """What answers which request."""
        return {
            messages.Prepare: self.prepare,
            messages.Warm: self.warm,
            Block: self.block,
            messages.GraphCount: self.graph_count,
            messages.Capture: self.capture,
        }

    def prepare(self, request: messages.Prepare) -> Prepared:
        """Put the input cases on the device, make the callable, and call it twice."""
        state = self.state
        state.cases = state.native_cases(request.inputs)
        start = state.clock()
        with state.context():
            state.call = state.framework.modes[request.mode](state.framework, state.model, state.cases[0])
            time_calls(state, 0, 1)
        first = state.clock() - start
        return Prepared(first, self.block(Block(0, 1)).seconds)

    def warm(self, request: messages.Warm) -> Warmed:
        """Call the cases in turn, as often and as long as asked."""
        clock = self.state.clock
        start, done, last = clock(), 0, 0.0
        while done < request.calls or clock() - start < request.seconds:
            last = self.block(Block(done % len(self.state.cases), 1)).seconds
            done += 1
        return Warmed(done, clock() - start, last)

    def block(self, request: Block) -> Timed:
        """Time a block of calls.

        Where its outputs are kept, they are read twice. How much longer the first reading takes is computation that ``wait``
        left undone.
        """
        state = self.state
        with state.context():
            seconds, outputs = time_calls(state, request.case, request.calls)
            if request.keep is None:
                return Timed(seconds)
            # The system can take seconds to find memory, which would count as unfinished computation: it finds it here.
            np.ones(request.room, np.uint8)
            start = state.clock()
            state.output_arrays(request.case, outputs)
            middle = state.clock()
            arrays = state.output_arrays(request.case, outputs)
            unfinished = (middle - start) - (state.clock() - middle)
        npz.save_file(arrays, Path(request.keep))
        return Timed(seconds, unfinished)

    def graph_count(self, request: messages.GraphCount) -> GraphsCounted:
        """How many graphs the callable has made so far."""
        return GraphsCounted(self.state.framework.graph_count(self.state.call))

    def capture(self, request: messages.Capture) -> Captured:
        """Run one untimed pass, and write what every layer takes and gives, and the outputs, into a folder.

        Where the model raises an error, what was captured before it is the reply: it tells best where the model breaks off.
        """
        state, framework = self.state, self.state.framework
        recorder = Recorder(Path(request.folder), state.plain_array)
        layers = framework.layers(state.model)
        known = rename_layers(layers, state.names)
        leaves = {name: to for name, to in known.items() if not any(other.startswith(name + ".") for other in layers)}
        names = leaves
        if request.wanted is not None:
            names = {name: to for name, to in known.items() if to in set(request.wanted)}
        broken = ""
        try:
            outputs = framework.capture(state.model, state.native_cases(request.inputs)[request.case], names, recorder)
        except (SubjectError, MemoryError):
            raise
        except Exception as error:
            traceback.print_exc()
            broken = first_line(error) + state.place(error)
        else:
            npz.save_file(state.output_arrays(request.case, outputs), Path(request.folder) / "outputs.npz")
        return Captured(
            tuple(recorder.records),
            {to: type(layers[name][0]).__name__ for name, to in names.items()},
            tuple(sorted(set(leaves.values()) - set(names.values()))),
            framework.channels_last,
            broken,
        )
