"""How xverify is installed: the command that installs an extra, and what else has its name.

The distribution is called ``xverify-frameworks``, because ``xverify`` is the distribution of another project, which has a package
of that name, too. Where this distribution is installed, ``pip install 'xverify-frameworks[EXTRA]'`` adds an extra to it, and pip
asks no package index for the distribution itself. Where it is not, as with PYTHONPATH, the command names the folder of the sources.
"""

from __future__ import annotations

import importlib.metadata
import json
import shlex
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

DISTRIBUTION = "xverify-frameworks"
# The entry point of the command, and that of before. A distribution that declares one of them is this project.
COMMANDS = ("xverify.__main__:main", "xverify.commands._main:main")
PACKAGE = Path(__file__).resolve().parent
SOURCES = PACKAGE.parent  # of a checkout; where a wheel is installed, the folder of all packages


def extra(names: str) -> str:
    """The command that installs extras, such as "torch" or "litert,tensorflow", into this environment."""
    if _distribution() is None and (SOURCES / "pyproject.toml").is_file():
        return f"pip install -e {shlex.quote(f'{SOURCES}[{names}]')}"
    return f"pip install '{DISTRIBUTION}[{names}]'"


def foreign(path: Sequence[str]) -> Iterator[str]:
    """Sentences about everything else that is called xverify here, with what mends it. Nothing of it is imported.

    path: where this interpreter looks for modules, with "" for the current folder.
    """
    for found in importlib.metadata.distributions(name="xverify"):
        if not any(point.value in COMMANDS for point in found.entry_points):
            yield (
                f"the distribution xverify {found.version} is another project, whose package has the same name. "
                f"Type: pip uninstall --yes xverify; pip install --force-reinstall --no-deps {_again()}"
            )
    spec = PathFinder.find_spec("xverify", list(path))
    if spec is not None:
        origin = [str(Path(spec.origin).parent)] if spec.origin and spec.submodule_search_locations else [spec.origin]
        places = [Path(place).resolve() for place in (*origin, *(spec.submodule_search_locations or ())) if place]
        if PACKAGE not in places:
            yield f"`import xverify` finds {places[0]}, which is no part of this xverify: rename it, or work in another folder"


def _distribution() -> importlib.metadata.Distribution | None:
    try:
        return importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return None


def _again() -> str:
    """What pip is told to install so that this xverify is installed once more, quoted for a shell."""
    found = _distribution()
    text = found.read_text("direct_url.json") if found is not None else None
    address = json.loads(text)["url"] if text else ""
    place = Path(url2pathname(urlsplit(address).path)) if address.startswith("file:") else SOURCES
    if place.is_dir():
        return f"-e {shlex.quote(str(place))}" if (place / "pyproject.toml").is_file() else DISTRIBUTION
    return shlex.quote(str(place))
