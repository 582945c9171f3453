"""The file that a conversion writes: its format, its place, and what may be replaced."""

from __future__ import annotations

import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from ..errors import UsageError
from ..framework import converter
from ..framework.converter import Converter
from ..workload.declaration import check_writable

MARK = "saved_model.pb"  # the file by which a folder is known to be a model file


@dataclass(frozen=True)
class Target:
    """A file that is going to be written. form: its format. path: its place. force: whether to replace what is there."""

    form: type[Converter]
    path: Path
    force: bool

    def check(self) -> None:
        """Raise UsageError when the file cannot be made at its place."""
        form, path = self.form, self.path
        if form.strict_suffix and path.suffix not in form.suffixes:
            raise UsageError(f"{path}: the name of a {form.title} ends with {' or '.join(form.suffixes)}")
        for part in form.parts(path):
            if part.is_symlink() or part.exists():
                self._check_replaceable(part)
        if not path.exists():
            check_writable("OUT", path)

    def _check_replaceable(self, part: Path) -> None:
        if part.is_dir() and not (self.form.folder and (part / MARK).is_file()):
            raise UsageError(f"{part} is a folder that is no {self.form.title}; it is never replaced: name another OUT")
        if not self.force:
            raise UsageError(f"{part} exists; --force replaces it")

    def take(self, staged: Path) -> None:
        """Move everything that a conversion made from its folder to its place."""
        for made in sorted(
            staged.iterdir(), key=lambda each: each.name == self.path.name
        ):  # the file itself comes last
            place = self.path.parent / made.name
            if place.is_dir() and not place.is_symlink():
                shutil.rmtree(place)
            os.replace(made, place)


def target(to: str | None, out: str | Path, quantize: str | None, force: bool) -> Target:
    """The target of a conversion, which can be written. Raises UsageError.

    to: the name of the format; None: told by the suffix of ``out``.
    """
    path = Path(out)
    if to is None:
        known = converter.files()
        fitting = [name for name in known if path.suffix and path.suffix in converter.load(name).suffixes]
        if len(fitting) != 1:
            raise UsageError(f"{out}: its suffix does not tell the format; name it with --to: {', '.join(known)}")
        to = fitting[0]
    form = converter.load(to)
    if quantize is not None and quantize in form.unsupported:
        raise UsageError(f"--to {to} --quantize {quantize}: {form.unsupported[quantize]}")
    found = Target(form, path, force)
    found.check()
    return found
