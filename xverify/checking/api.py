"""``xverify.check``: check model files, and return the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from .. import outputs
from ..errors import UsageError
from ..framework import reads
from ..outputs import Output, Read
from ..processes.space import temporary_folder
from ..progress import Listener
from ..results.records import Result
from ..workload.declaration import build, declared
from ..workload.declaration import check as check_values
from .graph_worker import begun
from .options import CheckSettings

SETTINGS = declared(CheckSettings)


def check(
    files: Sequence[str | Path] | str | Path,
    *,
    json: str | Path | None = None,
    force: bool = False,
    listener: Listener | None = None,
    **settings: Any,  # the fields of CheckSettings, each with its own type
) -> Result:
    """Check model files as ``xverify check`` does, with the same options, and return the records of its result file.

    A file that cannot be opened or computed becomes a row with its status and reason.
    Raises UsageError when the request cannot be run, TypeError for an unknown argument, and NotWritten, whose ``result`` is
    what was found, when the result file cannot be written.

    files: the model files. json: where the result file is written. force: replace a file there that xverify did not write.
    listener: receives the progress.
    """
    asked = build(CheckSettings, SETTINGS, settings, "check", ("files", "json", "force", "listener"))
    check_values(SETTINGS, {each.name: getattr(asked, each.name) for each in SETTINGS})
    paths = [Path(files)] if isinstance(files, (str, Path)) else [Path(each) for each in files]
    if not paths:
        raise UsageError("xverify check needs at least one model file")
    made = [Output("--json", Path(json), "json")] if json is not None else []
    made += [Output("--reproducer", Path(asked.reproducer))] if asked.reproducer is not None else []
    with temporary_folder() as space, begun(paths, asked, space) as graphs:
        # This is imported while the process that evaluates graphs imports torch.
        from ..results.file import write
        from .reproducer_files import check_folder
        from .run import check_files

        _check(asked)
        outputs.check(made, reads_of(paths, vars(asked)), force)
        check_folder(asked.reproducer, force)
        result = check_files(paths, asked, listener or Listener(), space, begun=graphs)
    if json is not None:
        write(result, Path(json))
    return result


def _check(asked: CheckSettings) -> None:
    """Raise UsageError for settings that do not fit together."""
    from ..reference.request import check_cores
    from .sequence import check_settings as check_sequence
    from .sizes import check_settings as check_sizes

    check_sequence(asked)
    check_sizes(asked)
    asked.check_timing()
    if asked.pin:
        check_cores(asked.pin)


def reads_of(files: Sequence[str | Path], values: Mapping[str, Any]) -> Iterator[Read]:
    """What a check of these files reads. values: name of a setting -> value."""
    yield from (reads.of_file("FILE", each) for each in files)
    if values["against"] is not None:
        yield from reads.of_model("--against", values["against"])
    yield from reads.of_options(SETTINGS, values)
