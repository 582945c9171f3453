"""The worker: one framework, one model, one mode, in a process of its own (``python -m xverify.worker``).

It needs numpy and its framework, so it runs under any interpreter that has those; the one that replays layers needs greenlet,
too. ``building``, ``timing``, ``reference``, ``training`` and ``training_reference`` hold what answers each request.
"""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any, cast

from ..errors import Failed, SubjectError, XverifyError, first_line
from . import codec
from .building import Building
from .codec import Hello, MessageError, Refusal, Reply, ReplyType, Request
from .messages import Stop
from .reference import ReferenceWork
from .state import Handlers, State
from .timing import Timing
from .training import TrainingSession
from .training_reference import TrainingReference


class Session:
    """What a worker does with requests, without the pipes. clock: seconds, by which everything is timed."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.state = State(clock)
        self.training = TrainingSession(self.state)
        groups = (
            Building(self.state),
            Timing(self.state),
            ReferenceWork(self.state),
            self.training,
            TrainingReference(self.state),
        )
        self.handlers: Handlers = {kind: handler for group in groups for kind, handler in group.handlers().items()}

    def ask(self, request: Request[ReplyType]) -> ReplyType:
        """Do what a request asks. Raises whatever it raises, and Failed for a request that nothing answers."""
        handler = self.handlers.get(type(request))
        if handler is None:
            raise Failed(f"a worker cannot answer {type(request).__name__!r}")
        return cast(ReplyType, handler(request))

    def answer(self, request: Request[Any]) -> Reply | Refusal:
        """As ``ask``; every exception becomes a refusal."""
        try:
            reply: Reply = self.ask(request)
            return reply
        except SubjectError as error:
            return Refusal(error.status, str(error))
        except XverifyError as error:
            return Refusal("failed", str(error))
        except MemoryError as error:
            return Refusal("failed", f"out of memory: {first_line(error)}; try a smaller --batch")
        except BaseException as error:
            traceback.print_exc()
            if isinstance(error, KeyboardInterrupt):
                raise
            return Refusal("failed", first_line(error) + self.state.place(error))

    def answer_line(self, line: bytes) -> bytes | None:
        """The line that answers a line; None when the worker is to end. Raises MessageError for a line without a number."""
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
    """Answer the requests of standard input, one a line, until it ends or says Stop."""
    # The messages take the pipes for themselves first: whatever a framework, or a compiler that it starts, writes to the
    # standard streams goes to the log.
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
    # A framework's threads and exit handlers have nothing left to say.
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
