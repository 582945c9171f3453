"""The worker: a process for one framework, one model and one mode (``python -m xverify.worker``).

It needs only numpy and its framework, so it runs under any interpreter that has these. Replays also need greenlet. The handlers of
the requests are in ``building``, ``timing``, ``soundness``, ``reference``, ``training``, ``training_reference``, ``own_step``,
``own_step_reference``, ``decoding``, ``files``, ``graph``, ``pieces``, ``conversion`` and ``weight_files``.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import cast

from ..errors import Failed, NoModel, SubjectError, XverifyError, first_line, full_disk
from ..messages import Stop, codec, lifeline
from ..messages.codec import Hello, MessageError, Refusal, ReplyType, Request
from .building import Building
from .conversion import ConversionWork
from .decoding import DecodingWork
from .files import FileWork
from .graph import GraphWork
from .handlers import Group, Handlers
from .outline import OutlineWork
from .own_step import OwnStepSession
from .own_step_reference import OwnStepReference
from .pieces import PieceWork
from .reference import ReferenceWork
from .soundness import Soundness
from .state import State
from .timing import Timing
from .training import TrainingSession
from .training_reference import TrainingReference
from .weight_files import WeightFileWork


class Session:
    """The worker without its pipes: it answers requests. clock: function that returns seconds, used for all timing."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.state = State(clock)
        self.training, graphs = TrainingSession(self.state), GraphWork(self.state)
        groups: tuple[Group, ...] = (
            Building(self.state),
            Timing(self.state),
            ReferenceWork(self.state),
            FileWork(self.state),
            graphs,
            PieceWork(graphs),
            ConversionWork(self.state),
            OutlineWork(self.state),
            Soundness(self.state),
            self.training,
            TrainingReference(self.state),
            OwnStepSession(self.state),
            OwnStepReference(self.state),
            WeightFileWork(self.state),
            DecodingWork(self.state),
        )
        self.handlers: Handlers = {kind: handler for group in groups for kind, handler in group.handlers().items()}

    def ask(self, request: Request[ReplyType]) -> ReplyType:
        """Do what a request asks. Raises the exceptions of its handler, and Failed for a request without a handler."""
        handler = self.handlers.get(type(request))
        if handler is None:
            raise Failed(f"a worker cannot answer {type(request).__name__!r}")
        return cast(ReplyType, handler(request))

    def answer(self, request: Request[ReplyType]) -> ReplyType | Refusal:
        """Do what a request asks, and convert every exception to a refusal."""
        try:
            return self.ask(request)
        except (SubjectError, NoModel) as error:
            return Refusal(error.status, str(error))
        except XverifyError as error:
            return Refusal("failed", str(error))
        except MemoryError as error:
            return Refusal("failed", f"out of memory: {first_line(error)}; try a smaller --batch")
        except BaseException as error:
            with suppress(OSError):  # the log is a file, and the disk may be full
                traceback.print_exc()
            # KeyboardInterrupt, too: a key does not reach a worker, so the code raised it.
            return Refusal("failed", full_disk(error) or self.state.reason(error))

    def answer_line(self, line: bytes) -> bytes | None:
        """The reply line to a request line; None when the worker has to end. Raises MessageError for a line without a number."""
        try:
            number, request = codec.decode_request(line)
        except MessageError as error:
            if error.number is None:
                raise
            return codec.encode_reply(error.number, Refusal("failed", str(error)))
        if isinstance(request, Stop):
            return None
        reply = self.answer(request)
        try:
            return codec.encode_reply(number, reply)
        except MessageError as error:
            return codec.encode_reply(number, Refusal("failed", str(error)))


def main() -> None:
    """Answer the requests of standard input, one per line, until it ends or the request is Stop."""
    lifeline.watch()
    # The pipes are reserved for messages first. Everything that a framework or its compiler writes to the standard streams later
    # goes to the log.
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    devnull = os.open(os.devnull, os.O_RDONLY)
    os.dup2(devnull, 0)
    os.dup2(2, 1)

    def send(line: bytes) -> None:
        replies.write(line)
        replies.flush()

    send(codec.encode_hello(Hello(codec.VERSION, os.getpid(), sys.version.split()[0])))
    session = Session()
    for line in requests:
        reply = session.answer_line(line)
        if reply is None:
            break
        send(reply)
    # End at once, without the framework's exit handlers and without waiting for its threads.
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)
