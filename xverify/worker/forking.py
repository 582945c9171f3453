"""A template of workers: it imports a framework once, and forks workers that go on as if each had imported it.

Nothing else happens in this process. So a worker finds no model, no weight and no setting of an earlier one, and imports the files
of its model itself. What starts threads or a device in the import cannot be forked; see ``Runner.forks``.
"""

from __future__ import annotations

import gc
import os
import random
import socket
import sys
import tempfile
import warnings
from contextlib import suppress
from importlib import import_module

import numpy as np

from ..framework import discovery
from ..messages import forking, lifeline
from ..messages.codec import Message
from .session import main as answer_requests


def main(framework: str, threads: int, device: str) -> None:
    """Import the framework, then fork a worker for each request, until the parent closes the channel."""
    lifeline.watch()
    channel = socket.socket(fileno=int(os.environ.pop(forking.CHANNEL)))
    channel.set_inheritable(False)
    _import(framework, threads, device)
    forking.send(channel, {})
    while True:
        try:
            message, streams = forking.receive(channel, forking.STREAMS + 1)
        except OSError:
            os._exit(0)
        if "reap" in message:
            _, status = os.waitpid(message["reap"], 0)
            forking.send(channel, {"status": os.waitstatus_to_exitcode(status)})
            continue
        sys.stdout.flush()
        sys.stderr.flush()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python warns of the thread that waits for the end of the parent
            worker = os.fork()
        if not worker:
            channel.close()
            _become_worker(message, streams)
        for each in streams:
            os.close(each)
        with suppress(OSError):
            os.setpgid(worker, worker)  # the parent may kill its group before it has made one itself
        forking.send(channel, {"pid": worker})


def _import(framework: str, threads: int, device: str) -> None:
    adapter = discovery.load(framework)
    adapter(threads, device)
    for name in adapter.preloads:
        with suppress(ImportError):  # what needs it will say so
            import_module(name)
    gc.collect()
    gc.freeze()  # a worker's own collections leave out what all of them share


def _become_worker(message: Message, streams: list[int]) -> None:
    """Go on as a worker. streams: its requests, its replies, its log, and the pipe that ends it with the parent."""
    try:
        os.setpgid(0, 0)
        for number, each in enumerate(streams[: forking.STREAMS]):
            os.dup2(each, number)
            os.close(each)
        os.environ.update(message["variables"], **{lifeline.VARIABLE: str(streams[-1])})
        os.chdir(message["folder"])
        tempfile.tempdir = None  # it may be that of the template
        random.seed()
        np.random.seed()
        answer_requests()
    finally:
        os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3])
