"""Breaks the protocol at the first call of ``device_memory``. The variable TALKATIVE names what it writes to the pipe."""

import json
import os

from xverify.frameworks.numpy.adapter import Adapter as Numpy
from xverify.messages import codec

NUMBER = 3  # of the request: Start, Build, DeviceMemory


def line(**message):
    return json.dumps(message).encode() + b"\n"


READ = {"reply": {"peak_mib": 99.0}}
LINES = {
    "wrong type": line(id=NUMBER, reply={"seconds": 0.0}),
    "wrong field": line(id=NUMBER, reply={"peak_mib": "99"}),
    "extra": line(id=NUMBER, **READ),
    "earlier number": line(id=NUMBER - 1, **READ),
    "later number": line(id=NUMBER + 1, **READ),
    "no number": line(**READ),
    "earlier protocol": line(ok={"peak_mib": 99.0}),
    "hello": codec.encode_hello(codec.Hello(codec.VERSION, 1, "3.11.7")),
    "a number": b"99\n",
    "half a line": b'{"id": 3, "reply": {"peak_\n',
    "text": b"loading...\n",
}


def write(text):
    """Write to all file descriptors that may be the worker's pipe for replies."""
    for descriptor in range(3, 20):
        try:
            os.write(descriptor, text)
        except OSError:
            continue


class Adapter(Numpy):
    name = "talkative"

    def device_memory(self):
        fault = os.environ.get("TALKATIVE", "")
        if fault:
            os.environ["TALKATIVE"] = ""
            write(LINES[fault])
        return {"peak_mib": 1.0}
