"""``xverify.convert``: convert a model, check the file, and return the result of the check."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..checking.figures import conditions
from ..checking.options import CheckSettings
from ..checking.reproducer_files import check_folder
from ..errors import UsageError, nearest
from ..framework import formats, reads
from ..outputs import Output
from ..processes.space import temporary_folder
from ..progress import Listener
from ..results.file import write
from ..results.records import Result
from ..workload.declaration import build, check, declared
from . import keeping
from .from_file import FileConversion, is_file
from .options import ConvertSettings, handed_on
from .run import Conversion
from .target import target

OWN = declared(ConvertSettings)
SETTINGS = (*OWN, *handed_on())


def convert(
    model: str | Path,
    out: str | Path,
    *,
    json: str | Path | None = None,
    listener: Listener | None = None,
    **settings: Any,  # the fields of ConvertSettings, and of CheckSettings those of handed_on; each with its own type
) -> Result:
    """Convert a model as ``xverify convert`` does, with the same options, check the file, and return the result of the check.

    Raises UsageError when the request cannot be run, SubjectError when the conversion fails, and TypeError for an unknown
    argument. No file is left then. Raises NotWritten, whose ``result`` is that of the check, when the result file cannot be
    written.

    model: a name of the zoo, a model folder, "torch=FILE.py:FUNCTION", a Keras file or a SavedModel. out: the file that is written.
    json: where the result file is written. listener: receives the progress.
    """
    names = {each.name for each in OWN}
    own = {name: value for name, value in settings.items() if name in names}
    rest = {name: value for name, value in settings.items() if name not in names}
    others = ("model", "out", "json", "listener", *names)
    asked = build(ConvertSettings, OWN, own, "convert")
    checking = build(CheckSettings, handed_on(), rest, "convert", others)
    values = {**vars(checking), **vars(asked)}
    check(SETTINGS, values)
    _check_before(checking)
    check_folder(checking.reproducer, asked.force)
    made = [Output("--json", Path(json), "json")] if json is not None else []
    made += [Output("--reproducer", Path(checking.reproducer))] if checking.reproducer is not None else []
    read = reads.of_run([model], SETTINGS, values)
    chosen = target(asked.to, out, asked.quantize, asked.force, read, made)
    if asked.keep is not None:
        keeping.check(asked.keep, asked.quantize, checking.accept, chosen.form)
    with temporary_folder() as space:
        kind = FileConversion if is_file(str(model)) else Conversion
        result = kind(chosen, asked, checking, listener or Listener(), space).execute(str(model))
    if json is not None:
        write(result, Path(json))
    return result


def _check_before(settings: CheckSettings) -> None:
    """Raise UsageError for a setting of the check that would be refused when the file has been made."""
    settings.check_timing()
    if settings.accept:
        conditions(settings.accept)
    known = {form.runtime for form in formats.load_all().values()}
    for name in map(str.strip, settings.on.split(",") if settings.on else ()):
        if name not in known:
            others = ", ".join(sorted(known))
            raise UsageError(f"--on {settings.on}: unknown runtime {name!r}{nearest(name, known)} Known: {others}")
