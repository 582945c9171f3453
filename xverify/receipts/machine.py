"""What a run depends on outside of its folder: installed packages, and adapters of the user's own."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path

from .. import frameworks
from ..framework import discovery
from ..interpreter import program
from ..workload.digests import file_digest

SECONDS = 60.0  # that another interpreter may take to list its packages
LIST = (
    "import json; from importlib import metadata as m; "
    "print(json.dumps({d.metadata['Name']: d.version for d in m.distributions() if d.metadata['Name']}))"
)  # packages of Python 3.9 have no attribute "name"


def packages(python: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Interpreter -> package -> version: of this interpreter, which is "", and of those in which frameworks run.

    python: framework -> interpreter.
    """
    here = {each.name: each.version for each in metadata.distributions() if each.name}
    return {"": dict(sorted(here.items())), **{path: _of(path) for path in sorted(set(python.values()))}}


def _of(python: str) -> dict[str, str]:
    """The packages of another interpreter; {} when it cannot list them."""
    try:
        done = subprocess.run(program(python, LIST), capture_output=True, text=True, timeout=SECONDS, check=True)
        content = json.loads(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError):
        return {}
    return dict(sorted((str(name), str(version)) for name, version in content.items()))


def adapters(subjects: Iterable[str]) -> dict[str, str]:
    """Framework -> digest of the file of its adapter, for adapters that are not xverify's own.

    subjects: as they are written, such as ``torch:eager``.
    """
    own, files = Path(frameworks.__path__[0]), discovery.files()
    names = dict.fromkeys(discovery.parse_subject(text)[0].name for text in subjects)
    return {name: file_digest(files[name]) for name in names if name in files and own not in files[name].parents}
