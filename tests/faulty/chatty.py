"""Writes to the standard streams in every method, also directly to the file descriptors. Everything else is right."""

import os
import sys

from xverify.frameworks.numpy.adapter import Adapter as Numpy


class Adapter(Numpy):
    name = "chatty"

    def __init__(self, threads, device):
        super().__init__(threads, device)
        self.shout()

    def wait(self, outputs):
        self.shout()

    def shout(self):
        print('{"id": 4, "reply": {"seconds": 0.0, "unfinished_seconds": null}}')
        os.write(1, b'{"error": "garbage"}\n\xff\xfe')
        os.write(2, b"\x1b[31mnoise\x1b[0m\n")
        sys.stdout.flush()
