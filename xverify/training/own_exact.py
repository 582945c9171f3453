"""The exact steps of a user's own code beside which a subject's are compared: as they are, or with changed optimizers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from ..messages.own_step import WriteOwnVariants
from ..reference.build import Prepared, ReferenceProcess
from ..weights import npz
from .learner import Learner
from .own_made import Made
from .own_step import Weights

# Known differences in the place of eps, which are a small part of what differs beside another mistake.
PLACES_OF_EPS = (("eps-hat",), ("eps-inside",))
CLIP_EPS = "clip eps"  # of the clipping, and not of an optimizer
GIVEN = "given"  # folder in that of a subject's worker
EXACT, NOISE = "own-exact-{}.npz", "own-noise-{}.npz"  # files of float64.own_truth, in a module that needs no torch


@dataclass(frozen=True)
class ExactSteps:
    """Exact steps in files.

    folder: of the files. variants: formula variants that the optimizers have in them.
    given: the path of a subject's watched steps, whose gradients the optimizers are given; "": their own.
    fused_parameters: of this subject, see Framework.fused_parameters.
    """

    folder: Path
    variants: tuple[str, ...] = ()
    given: str = ""
    fused_parameters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @property
    def plain(self) -> Path:
        """The folder of the same steps without variants."""
        return self.folder.parent if self.variants else self.folder

    def arrays(self, number: int) -> npz.OnDisk:
        """The exact arrays of a step, and their noise."""
        return npz.OnDisk(self.folder / EXACT.format(number), self.folder / NOISE.format(number))

    def explains(self, failing: bool, nearer: bool) -> bool:
        """Whether a subject has these variants. failing, nearer: whether it differs from these steps, and differs by less."""
        return not failing or (nearer and self.variants in PLACES_OF_EPS)


@dataclass(frozen=True)
class Beside:
    """A step of a subject beside an exact one. weights: its parameters after the step.

    rival: the exact steps with all variants that the subject's framework has; None unless neither they nor the steps without
        variants explain what differs. A mistake may then hide whether the subject has these variants.
    """

    made: Made
    weights: Weights
    exact: ExactSteps
    rival: ExactSteps | None = None

    @classmethod
    def of(cls, made: Made, exact: ExactSteps) -> Beside:
        """Compare the parameters with these exact steps."""
        made = replace(made, exact=exact.arrays(made.number))
        return cls(made, Weights.of(made, False), exact)


class ChangedSteps:
    """Makes the exact steps with changed optimizers, each of them once.

    files: the weights before each step. few: whether steps are so long that little is done.
    lowered, parts: see ComputeOwnTruth.
    """

    def __init__(
        self,
        process: ReferenceProcess,
        prepared: Prepared,
        files: tuple[str, ...],
        few: bool,
        lowered: str = "",
        parts: tuple[int, ...] = (),
    ) -> None:
        self.process, self.prepared, self.files, self.few = process, prepared, files, few
        self.lowered, self.parts = lowered, parts
        self._written: dict[Path, dict[tuple[str, ...], ExactSteps | None]] = {}  # by the folder of what is changed

    def with_variants(self, base: ExactSteps, variants: Sequence[str]) -> Iterator[ExactSteps]:
        """These steps with each of the variants, and with all of them, as far as the optimizers have them."""
        written = self._written.setdefault(base.folder, {})
        alone = [(each,) for each in variants]
        for asked in [*alone, tuple(variants)] if len(alone) > 1 else alone:
            if asked not in written:
                written[asked] = self._write(base, asked)
            exact = written[asked]
            if exact is not None:
                yield exact

    def given(self, learner: Learner, watched: Path) -> ExactSteps:
        """The steps that the reference's optimizers make of a subject's gradients. watched: the path of its steps."""
        base = ExactSteps(
            learner.worker.folder / GIVEN, given=str(watched), fused_parameters=dict(learner.fused_parameters)
        )
        if base.folder not in self._written:
            self._written[base.folder] = {}
            self._ask(base, ())
        return base

    def forget(self, learner: Learner) -> None:
        """Forget the steps with the gradients of a subject, which makes its steps again."""
        self._written.pop(learner.worker.folder / GIVEN, None)

    def nearest(self, beside: Beside, variants: Sequence[str], own: Sequence[str]) -> Beside:
        """The same beside steps with variants, where these explain what differs. own: those that the subject's framework has."""
        best, rival = beside, None
        for exact in self.with_variants(beside.exact, variants) if best.weights.failing else ():
            other = Beside.of(beside.made, exact)
            if set(exact.variants) <= set(own) and exact.variants != (
                CLIP_EPS,
            ):  # it changes less than a search can see
                rival = exact
            if exact.explains(bool(other.weights.failing), other.weights.badness < best.weights.badness):
                best = other
            if not best.weights.failing:
                break
        return replace(best, rival=rival) if best is beside else best

    def _write(self, base: ExactSteps, asked: tuple[str, ...]) -> ExactSteps | None:
        """Write the steps with variants; None where the steps with fewer of them are the same."""
        self.process.phase(f"its own steps with {' and '.join(asked)}")
        exact = replace(base, folder=base.folder / "+".join(asked).replace(" ", "-"))
        found = self._ask(exact, asked)
        return replace(exact, variants=found) if found and (len(asked) == 1 or len(found) > 1) else None

    def _ask(self, exact: ExactSteps, asked: tuple[str, ...]) -> tuple[str, ...]:
        """Write the steps with variants, and return those that the optimizers have."""
        exact.folder.mkdir(exist_ok=True)
        question = WriteOwnVariants(
            self.files,
            str(self.prepared.training),
            str(exact.folder),
            self.process.request.seed,
            once=self.few,
            lowered=self.lowered,
            variants=asked,
            given=exact.given,
            fused_parameters=dict(exact.fused_parameters),
            parts=self.parts,
        )
        found: tuple[str, ...] = self.process.worker.ask(question)
        return found
