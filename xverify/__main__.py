"""The command ``xverify``. It imports little before Ctrl-C has an effect of its own: the command itself imports for a second."""

import signal
import sys

from . import interrupts


def main() -> int:
    """Run one command, and return its exit code."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where it is ignored
        signal.signal(signal.SIGINT, interrupts.end)
    from .commands._main import main as command

    return command()


if __name__ == "__main__":
    sys.exit(main())
