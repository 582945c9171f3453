"""Commands in a terminal, which is a pseudo-terminal here."""

import os
import pty
import re
import struct
import subprocess
import sys
import termios
import threading
from fcntl import ioctl
from types import SimpleNamespace

from conftest import FAULTY

from helpers.commandline import forked_to
from helpers.inprocess import one_process
from xverify.commands._main import main

COLUMNS, LINES = 80, 24
TOKENS = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|\r|\n|[^\x1b\r\n]+")


def in_terminal(folder, *arguments, columns=COLUMNS, lines=LINES, process=False, **environment):
    """Run a command whose output goes to a terminal. Returns its code, all that it wrote, and the lines that stay on the screen.

    It runs in a fork of this process, and so do its workers. process: in a new process.
    """
    master, terminal = pty.openpty()
    ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    written = []

    def read():
        try:
            while text := os.read(master, 65536):
                written.append(text)
        except OSError:
            pass  # the terminal is closed

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    kept = {
        name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR")
    }
    variables = {**kept, "XVERIFY_FRAMEWORKS": str(FAULTY), "TERM": "xterm-256color", **environment}
    command = list(map(str, arguments))
    if process:
        code = subprocess.run(
            [sys.executable, "-m", "xverify", *command],
            stdin=subprocess.DEVNULL, stdout=terminal, stderr=terminal, cwd=folder, check=False, timeout=300, env=variables,
        ).returncode  # fmt: skip
    else:
        with one_process():
            code = forked_to(terminal, lambda: main(command), folder, variables)
    os.close(terminal)
    reader.join(10)
    os.close(master)
    raw = b"".join(written).decode()
    return SimpleNamespace(code=code, raw=raw, screen=screen(raw, lines))


def screen(raw, height=LINES):
    """The lines that a terminal of this height shows in the end, and above them those that scrolled away, which nothing can erase.

    A line that is too long for it is not broken here.
    """
    lines, row, column = [""], 0, 0
    for token in TOKENS.findall(raw):
        if token == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif token == "\r":
            column = 0
        elif token.startswith("\x1b["):
            count, action = token[2:-1], token[-1]
            if action == "A":
                row = max(row - int(count or 1), len(lines) - height, 0)
            if action == "K":
                lines[row] = ""
        else:
            line = lines[row].ljust(column)
            lines[row] = line[:column] + token + line[column + len(token) :]
            column += len(token)
    return [line.rstrip() for line in lines]
