"""``xverify.check``: check model files, and return the result."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..processes.space import temporary_folder
from ..progress import Listener
from ..reference.request import check_cores
from ..results.file import write
from ..results.records import Result
from ..workload.declaration import build, declared
from ..workload.declaration import check as check_values
from .options import CheckSettings
from .run import check_files
from .sequence import check_settings as check_sequence

SETTINGS = declared(CheckSettings)


def check(
    files: Sequence[str | Path] | str | Path,
    *,
    json: str | Path | None = None,
    listener: Listener | None = None,
    **settings: Any,  # the fields of CheckSettings, each with its own type
) -> Result:
    """Check model files as ``xverify check`` does, with the same options, and return the records of its result file.

    A file that cannot be opened or computed becomes a row with its status and reason.
    Raises UsageError when the request cannot be run, TypeError for an unknown argument, and NotWritten, whose ``result`` is
    what was found, when the result file cannot be written.

    files: the model files. json: where the result file is written. listener: receives the progress.
    """
    asked = build(CheckSettings, SETTINGS, settings, "check", ("files", "json", "listener"))
    check_values(SETTINGS, {each.name: getattr(asked, each.name) for each in SETTINGS})
    check_sequence(asked)
    asked.check_timing()
    if asked.pin:
        check_cores(asked.pin)
    paths = [Path(files)] if isinstance(files, (str, Path)) else [Path(each) for each in files]
    if not paths:
        raise UsageError("xverify check needs at least one model file")
    with temporary_folder() as space:
        result = check_files(paths, asked, listener or Listener(), space)
    if json is not None:
        write(result, Path(json))
    return result
