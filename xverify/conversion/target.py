"""The file that a conversion writes: its format, its place, and what may be replaced."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .. import outputs, writing
from ..errors import NotWritten, UsageError, with_article
from ..framework import converter, reads
from ..framework.converter import Converter
from ..outputs import Output, Read

MARK = "saved_model.pb"  # the file by which a folder is known to be a model file
# What such a folder holds.
PARTS = re.compile(
    r"saved_model\.pb(txt)?|(keras_metadata|fingerprint)\.pb|assets(\.extra)?(/.*)?|variables(/variables\.(index|data-\d+-of-\d+))?"
)


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
            raise UsageError(f"{path}: the name of {with_article(form.title)} ends with {' or '.join(form.suffixes)}")
        for part in form.parts(path):
            if part.is_symlink() or part.exists():
                self._check_replaceable(part)
        if not path.is_dir():
            writing.check("OUT", path)

    @cached_property
    def _earlier(self) -> frozenset[Path]:
        """The files that belong to the file that is replaced."""
        found = set()
        with suppress(UsageError, OSError):  # a damaged file tells of no others
            found |= {Path(os.path.normpath(each)) for each in reads.of_file("OUT", self.path).others()}
        return frozenset(found)

    def _check_replaceable(self, part: Path) -> None:
        if part.is_symlink():  # the file itself is no link any more: see ``target``
            raise UsageError(f"{part} is a link, and would belong to {self.path}; remove it, or name another OUT")
        if part.is_dir() and not (self.form.folder and (part / MARK).is_file()):
            raise UsageError(f"{part} is a folder that is no {self.form.title}; it is never replaced: name another OUT")
        strange = next(_strange(part), None) if part.is_dir() else None
        if strange is not None:
            raise UsageError(
                f"{strange} is no part of {with_article(self.form.title)}, and {part} is replaced as a whole; move it elsewhere"
            )
        if not part.is_dir() and not part.is_file():
            raise UsageError(f"{part} is neither a file nor a folder; it is never replaced: name another OUT")
        self._check_belongs(part)
        if not self.force:
            raise UsageError(f"{part} exists; --force replaces it")

    def _check_belongs(self, part: Path) -> None:
        """Raise UsageError for a file of the user in the place of a part, such as external data, of the file that is made."""
        if part != self.path and part not in self._earlier:
            raise UsageError(
                f"{part} exists, and {self.path.name} has a part of this name; it belongs to no earlier {self.path.name}, so it is "
                "never replaced: remove it, or name another OUT"
            )

    def take(self, staged: Path) -> None:
        """Move everything that a conversion made from its folder to its place. Raises NotWritten."""
        made = sorted(staged.iterdir(), key=lambda each: each.name == self.path.name)  # the file itself comes last
        try:
            for each in (file for part in made for file in (part, *part.rglob("*"))):
                writing.sync(each)
            for each in made:
                self._check_beside(self.path.parent / each.name)
            for each in made:
                _replace(each, self.path.parent / each.name)
        except OSError as error:
            raise NotWritten(f"{self.path} cannot be written: {error.strerror or error}") from None

    def _check_beside(self, place: Path) -> None:
        """Raise UsageError for a file in the place of a part that nobody knew would be made, such as external data."""
        if place in self.form.parts(self.path) or not os.path.lexists(place):
            return
        self._check_belongs(place)
        if place.is_symlink() or not self.force:
            raise UsageError(f"{place} exists, and {self.path.name} has a part of this name; --force replaces it")


def _strange(folder: Path) -> Iterator[Path]:
    """What a folder holds that is no part of a SavedModel."""
    return (each for each in sorted(folder.rglob("*")) if not PARTS.fullmatch(each.relative_to(folder).as_posix()))


def _replace(made: Path, place: Path) -> None:
    """Move a file or folder to its place. A folder there is deleted when the new one has taken its place."""
    aside = made.with_name(f"{made.name}.earlier")
    had_folder = place.is_dir()
    if had_folder:
        os.replace(place, aside)
    try:
        os.replace(made, place)
    except OSError:
        if had_folder:
            os.replace(aside, place)
        raise


def target(
    to: str | None,
    out: str | Path,
    quantize: str | None,
    force: bool,
    read: Iterable[Read] = (),
    others: Sequence[Output] = (),
) -> Target:
    """The target of a conversion, which can be written. A link stays, and the file that it leads to is made. Raises UsageError.

    to: the name of the format; None: told by the suffix of ``out``. read: what the conversion reads. others: what else is written.
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
    found = Target(form, Path(os.path.realpath(path)), force)
    parts = dict.fromkeys(form.parts(found.path))
    outputs.check([*(Output("OUT", part) for part in parts), *others], read, force)
    if path.is_symlink() and not force:
        raise UsageError(f"{path} is a link; --force replaces the file that it leads to")
    found.check()
    return found
