"""The command line of an interpreter that is started: it imports nothing from the folder in which it is started.

With ``-c`` and ``-m``, Python looks for modules in the current folder first, where a user's ``json.py`` hides that of the library.
The option ``-P``, which prevents this, exists from Python 3.11 on only, and an older interpreter may be started. So every program
begins with the removal of that folder. Entries of ``PYTHONPATH`` stay.
"""

from __future__ import annotations

ELSEWHERE = "import sys; sys.path[:] = filter(None, sys.path)\n"  # the current folder is an empty entry
MODULE = "import runpy; runpy.run_module({name!r}, run_name='__main__', alter_sys=True)"


def program(python: str, code: str, *, isolated: bool = False) -> list[str]:
    """The command that runs this code. isolated: without what PYTHONPATH and the folder of the user add."""
    return [python, *["-I"] * isolated, "-c", ELSEWHERE + code]


def module(python: str, name: str, *arguments: str, isolated: bool = False) -> list[str]:
    """The command that runs a module, as ``-m`` does."""
    return [*program(python, MODULE.format(name=name), isolated=isolated), *arguments]
