"""What a parent asks a template of workers, and what it answers: one JSON object each, over a socket.

A template is a process that has imported a framework. It first tells that it has: ``{}``. Then it is asked for workers, and for
the exit status of those that have ended:

    {"variables": {"TMPDIR": ...}, "folder": "/tmp/..."}  with three descriptors -> {"pid": 123}
    {"reap": 123} -> {"status": -9}
"""

from __future__ import annotations

import json
import socket
from collections.abc import Sequence

from .codec import Message

CHANNEL = "XVERIFY_CHANNEL"  # environment variable with the number of the template's end of the socket
MODULE = "xverify.worker.forking"  # what a template runs; its arguments are framework, threads and device
STREAMS = 3  # descriptors of a worker: its requests, its replies, and its log
LARGEST = 2**16  # bytes of a message


def pair() -> tuple[socket.socket, socket.socket]:
    """The two ends of a channel, which keeps the borders of messages."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def send(channel: socket.socket, message: Message, descriptors: Sequence[int] = ()) -> None:
    """Send a message. Raises OSError when the other end is closed."""
    socket.send_fds(channel, [json.dumps(message).encode()], descriptors)


def receive(channel: socket.socket, most: int = 0) -> tuple[Message, list[int]]:
    """The next message, and the descriptors that came with it. most: their greatest number. Raises OSError at the end."""
    line, descriptors, _, _ = socket.recv_fds(channel, LARGEST, most)
    if not line:
        raise ConnectionResetError("the other end is closed")
    message: Message = json.loads(line)
    return message, list(descriptors)
