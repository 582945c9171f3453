"""The timed calls of a worker, and the untimed pass that captures its layers."""

from __future__ import annotations

import time
import traceback
from itertools import cycle, islice, pairwise, repeat
from pathlib import Path
from typing import Any

import numpy as np

from .. import messages
from ..errors import SubjectError
from ..framework.capture import Recorder, first_items
from ..messages import Block, Captured, PiecesTimed, Prepared, Timed, Warmed
from ..weights import npz
from .arranged import CallSplitter, ReplacingChannels
from .handlers import Group
from .state import State


def time_calls(state: State, case: int, calls: int) -> tuple[float, Any]:
    """Time this number of calls on one case: (seconds, outputs of the last call). Only the calls and waits are timed.

    Where a call returns computed outputs, there is no wait after it: even a wait that does nothing takes 1 µs after a call that
    has filled the processor's caches.
    """
    call, wait, clock, inputs = state.call, state.runner.wait, state.clock, state.cases[case]
    outputs: Any = ()
    state.runner.case_asked = case
    if state.plan:  # a rank that begins earlier would wait for the others while its clock runs
        state.framework.meet()
    if state.runner.times_itself:
        (seconds,), outputs = state.runner.timed_pieces(call, [inputs], calls, 1)
        return seconds, outputs
    wait(())
    if state.blocking:
        start = clock()
        for _ in repeat(None, calls):
            outputs = call(*inputs)
        return clock() - start, outputs
    start = clock()
    for _ in repeat(None, calls):
        outputs = call(*inputs)
        wait(outputs)
    wait(())
    return clock() - start, outputs


def time_pieces(state: State, calls: int, count: int) -> tuple[float, ...]:
    """Time this number of pieces, each of this number of calls on the cases in turn, without a pause between them."""
    if state.runner.times_itself:
        return state.runner.timed_pieces(state.call, state.cases, calls, count)[0]
    call, wait, clock, blocking = state.call, state.runner.wait, state.clock, state.blocking
    cases = cycle(state.cases)
    wait(())
    edges = [clock()]
    for _ in repeat(None, count):
        for inputs in islice(cases, calls):
            outputs = call(*inputs)
            if not blocking:
                wait(outputs)
        if not blocking:
            wait(())
        edges.append(clock())
    return tuple(end - start for start, end in pairwise(edges))


class Timing(Group):
    """Handlers of requests about one mode of the model."""

    def prepare(self, request: messages.Prepare) -> Prepared:
        """Put the input cases on the device, make the callable, and call it twice."""
        state = self.state
        state.cases = state.native_cases(request.inputs)
        start = state.clock()
        with state.context():
            state.call = state.runner.modes[request.mode](state.runner, state.model, state.cases[0])
            state.blocking = state.runner.blocking
            time_calls(state, 0, 1)
        first = state.clock() - start
        return Prepared(first, self.block(Block(0, 1)).seconds)

    def warm(self, request: messages.Warm) -> Warmed:
        """Call the model on the cases in turn, until both the number of calls and the time are reached."""
        clock = self.state.clock
        start, done, last = clock(), 0, 0.0
        while done < request.calls or clock() - start < request.seconds:
            last = self.block(Block(done % len(self.state.cases), 1)).seconds
            done += 1
        return Warmed(done, clock() - start, last)

    def block(self, request: Block) -> Timed:
        """Time a block of calls.

        Outputs that are kept are read twice. The additional time of the first reading is computation that was not finished after
        ``wait``.
        """
        state = self.state
        with state.context():
            seconds, outputs = time_calls(state, request.case, request.calls)
            if request.keep is None:
                return Timed(seconds)
            # The system may need seconds to provide memory. It does so here, where this time does not count as computation.
            np.ones(request.room, np.uint8)
            start = state.clock()
            state.output_arrays(request.case, outputs)
            first = state.clock() - start
            if request.calls_between:
                time_calls(state, request.case, request.calls)
                time.sleep(seconds)  # calls that were not waited for end meanwhile
                np.ones(request.room, np.uint8)
            start = state.clock()
            arrays = state.output_arrays(request.case, outputs)
            unfinished = first - (state.clock() - start)
        npz.save_file(arrays, Path(request.keep))
        return Timed(seconds, unfinished)

    def pieces(self, request: messages.Pieces) -> PiecesTimed:
        """Time a series of pieces."""
        with self.state.context():
            return PiecesTimed(time_pieces(self.state, request.calls, request.count))

    def call_on(self, request: messages.CallOn) -> None:
        """Call the callable on other inputs. The outputs of a call are copied, because the next one may write over them."""
        state, arrays = self.state, dict[str, np.ndarray[Any, Any]]()
        for case, inputs in enumerate(state.native_cases(request.inputs)):
            with state.context():
                outputs = state.call(*inputs)
                state.runner.wait(outputs)
                arrays |= {key: np.array(array) for key, array in state.output_arrays(case, outputs).items()}
        npz.save_file(arrays, Path(request.path))

    def graph_count(self, request: messages.GraphCount) -> int | None:
        """Count the graphs that the callable has made so far."""
        return self.state.runner.graph_count(self.state.call)

    def capture(self, request: messages.Capture) -> Captured:
        """Run one untimed pass, and write the inputs and outputs of every layer, and the model's outputs, into a folder.

        When the model raises an error, the reply has everything that was captured before it, which shows where the model fails.
        """
        state, framework = self.state, self.state.framework
        recorder = self._recorder(request)
        layers = framework.layers(state.model)
        known = state.layer_names()
        leaves = {name: to for name, to in known.items() if not any(other.startswith(name + ".") for other in layers)}
        names = leaves
        if request.wanted is not None:
            wanted = set(request.wanted)
            names = {name: to for name, to in known.items() if to in wanted or state.channels.made_by(name) & wanted}
        broken, framework.case_asked = "", request.case
        try:
            outputs = framework.capture(state.model, state.native_cases(request.inputs)[request.case], names, recorder)
        except (SubjectError, MemoryError):
            raise
        except Exception as error:
            traceback.print_exc()
            broken = state.reason(error)
        else:
            arrays = state.output_arrays(request.case, outputs)
            arrays = {key: first_items(array, request.first) for key, array in arrays.items()}
            npz.save_file(arrays, Path(request.folder) / "outputs.npz")
        splitter = CallSplitter(state.channels, Path(request.folder), framework.channels_last)
        kinds = {
            each: type(layers[name][0]).__name__ for name, to in names.items() for each in state.computed_by(name, to)
        }
        return Captured(
            tuple(splitter.split(recorder.records)),
            kinds,
            tuple(sorted({each for name, to in leaves.items() for each in state.computed_by(name, to)} - set(kinds))),
            framework.channels_last,
            broken,
        )

    def _recorder(self, request: messages.Capture) -> Recorder:
        """What records the calls of the layers."""
        state, folder = self.state, Path(request.folder)
        if request.returned is None:
            return Recorder(folder, state.plain_array, request.first)
        arrays = npz.load_file(Path(request.returned))
        to_native, last = state.runner.to_native, state.framework.channels_last
        return ReplacingChannels(
            state.channels, last, folder, state.plain_array, arrays, lambda array: to_native(array, None)
        )
