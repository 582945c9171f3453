"""The conversion of a model file, which is its own reference: input cases -> steps of the target -> check against the file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..checking import cases
from ..checking.cases import Input
from ..checking.subject import File, Opened, make_worker, open_file
from ..errors import UsageError, with_article
from ..framework import converter, discovery, formats
from ..framework.converter import INT8, Step
from ..framework.modelfile import ModelFile
from ..messages.conversion import Convert
from ..results.records import Result
from ..weights import npz
from ..workload.code import parse
from ..workload.spec import zoo
from . import checked
from .options import ConvertSettings
from .run import Conversion, staged_folder
from .target import MARK

SUFFIXES = (".keras", ".h5")  # of files that are meant where there is none


def is_file(text: str) -> bool:
    """Whether the source of a conversion is a model file; it may be missing."""
    path = Path(text)
    if text in zoo() or parse(text) is not None:
        return False
    in_folder = (path.parent / "spec.py").is_file() or path.suffix == ".py"  # the code of a model folder, or beside it
    return (path.is_file() and not in_folder) or (path / MARK).is_file() or path.suffix in SUFFIXES


@dataclass(frozen=True)
class FileConversion(Conversion):
    """A conversion of a model file. The file is the reference of the check that follows."""

    def execute(self, text: str) -> Result:
        """Convert and check. Raises UsageError and SubjectError when there is no file in the end. text: the path of the file."""
        source = Path(text)
        form = formats.examine(source, trust=self.checking.trust)
        steps = self._steps(form, text)
        self._check_installed(steps)
        calibration = self.space / "calibration.npz"
        worker = make_worker(source.name, form, self.space, self.checking, self.listener)
        with staged_folder(self.target) as staged:
            try:
                self.listener.phase(self.target.path.name, f"opening {source.name}")
                opened = open_file(File(source.name, source, form, worker), self.checking)
                inputs, notes = self._inputs(opened)
                npz.save_file(cases.make(inputs, self.checking.seed, ("random",) * self.settings.cases), calibration)
                says = self._steps_of(opened, steps, calibration, staged)
            finally:
                worker.close()
            self.target.take(staged)
        made = f"{source.name} was converted by {', then '.join(says)}"
        self.listener.phase(self.target.path.name, f"checking it against {source.name}")
        asked = replace(self.checking, against=text, shape={each.name: each.shape for each in inputs})
        given = calibration if self.settings.quantize == INT8 else None  # a calibration holds for inputs like its own
        return checked.check_against_file(self.target.path, asked, given, (made, *notes), self.listener)

    def _steps(self, form: type[ModelFile], text: str) -> tuple[Step, ...]:
        """The steps for a file of this format. Raises UsageError where there is none, and for options that it does not take."""
        target, settings = self.target.form, self.settings
        known = [with_article(each.title) for each in formats.load_all().values() if each.converts]
        if not form.converts:
            raise UsageError(
                f"{text} is {with_article(form.title)}, and no source of a conversion: name {', '.join(known)}, or the model "
                "that it was made of"
            )
        steps = target.steps_of_file(form.runtime, settings.quantize)
        if not steps:
            others = [
                name
                for name, each in converter.load_all().items()
                if each.steps_of_file(form.runtime, settings.quantize)
            ]
            raise UsageError(
                f"{text} is {with_article(form.title)}, of which no {target.title} is made; --to takes {', '.join(others)} for it"
            )
        plain = ConvertSettings()
        for name in ("weights", "exporter", "keep"):
            if getattr(settings, name) != getattr(plain, name):
                raise UsageError(
                    f"--{name} {getattr(settings, name)}: it is for a model with code, and {text} is a file"
                )
        return steps

    def _steps_of(self, opened: Opened, steps: Sequence[Step], inputs: Path, staged: Path) -> list[str]:
        """Do all steps. Returns a phrase about each. inputs: the array file of the input cases."""
        signature, says, made = opened.signature, [], None
        for index, step in enumerate(steps):
            path = staged / self.target.path.name if step is steps[-1] else self.space / f"step-{index}" / step.file
            path.parent.mkdir(exist_ok=True)
            self.listener.phase(self.target.path.name, f"converting with {step.framework}")
            question = Convert(
                to=self.target.form.name,
                method=step.method,
                inputs=str(inputs),
                names=tuple(each.name for each in signature.inputs),
                outputs=tuple(each.name for each in signature.outputs),
                path=str(path),
                source=None if step.builds else str(made),
                quantize=self.settings.quantize,
                exporter=self.settings.exporter,
                traces=True,
            )
            if step.builds:
                says.append(opened.worker.ask(question))
            else:
                with self._worker(discovery.load(step.framework), f"{step.framework}-{index}") as worker:
                    says.append(worker.ask(question))
            made = path
        return says

    def _inputs(self, opened: Opened) -> tuple[list[Input], list[str]]:
        """The inputs with every size known, and a note on each guess."""
        asked, batch = self.settings, self.settings.batch
        tensors = opened.signature.inputs
        found, notes = cases.settle(tensors, asked.shape or {}, batch=batch or cases.BATCH)
        for each in found:
            if batch is not None and each.shape[:1] != (batch,):
                sizes = "x".join(map(str, each.shape)) or "a scalar"
                raise UsageError(f"--batch {batch}: the input {each.name} of {opened.path.name} is {sizes}")
        cases.check_size(found)
        return found, notes
