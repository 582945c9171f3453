"""Compares a run with an earlier one: do all verdicts agree, and what differs in settings, versions and machine? Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields

from ..results.records import Result, Row, Settings
from ..results.verdicts import Outcome, Verdict
from ..workload.ranks import ONE_PROCESS
from .records import Packages

# Settings that differ between a run and its repetition from a receipt without any change of what is computed.
OF_PLACE = (
    "model",
    "asked",
    "weights",
    "weights_digest",
    "data",
    "notes",
    "subjects",
    "task",
    "trust",
    "max_weights",
    "python",
)
HOST = ("cpu", "cores", "memory_gib", "system", "python")
MOST_PACKAGES = 12  # that a sentence names
KINDS = ("row", "check", "layer", "output")


@dataclass(frozen=True)
class Finding:
    """One verdict in both results.

    row: the subject and its task. kind: of KINDS. what: which check, layer or output; "" for the row itself.
    old, new: the verdicts, or the status of a row without one; "-" where a result does not have it.
    """

    row: str
    kind: str
    what: str
    old: str
    new: str

    @property
    def agrees(self) -> bool:
        """Whether both are the same, or both are as good as EQUAL."""
        return self.old == self.new or {self.old, self.new} <= {Verdict.IDENTICAL.value, Verdict.EQUAL.value}

    def __str__(self) -> str:
        what = f", {self.what}" if self.what else ""
        return f"{self.row}{what}: {self.old} → {self.new}"


@dataclass(frozen=True)
class Comparison:
    """All verdicts of two results. differences: sentences on settings, versions and machine."""

    findings: tuple[Finding, ...]
    differences: tuple[str, ...]

    @property
    def differing(self) -> tuple[Finding, ...]:
        """The verdicts that do not agree."""
        return tuple(each for each in self.findings if not each.agrees)

    @property
    def outcome(self) -> Outcome:
        """PASS when all agree, FAIL when one differs, ERROR when rows only no longer run, INCONCLUSIVE when there is no verdict."""
        names = {verdict.value for verdict in Verdict}
        if any(each.new in names for each in self.differing if each.kind == "row"):
            return Outcome.FAIL
        if any(each.kind == "row" for each in self.differing):
            return Outcome.ERROR
        if self.differing:
            return Outcome.FAIL
        known = any({each.old, each.new} & names for each in self.findings)
        return Outcome.PASS if known else Outcome.INCONCLUSIVE

    def counts(self) -> str:
        """How many verdicts agree, of how many: ``2 of 2 rows, 14 of 14 layers, 8 of 8 outputs``."""
        every, good = (
            Counter(each.kind for each in self.findings),
            Counter(each.kind for each in self.findings if each.agrees),
        )
        return ", ".join(
            f"{good[kind]} of {every[kind]} {kind}{'s' * (every[kind] != 1)}" for kind in KINDS if every[kind]
        )


def compare(old: Result, new: Result, differences: Sequence[str] = ()) -> Comparison:
    """Compare every row, training-parity check, layer and output. differences: further sentences on what is not the same."""
    before, after = ({(row.task, row.subject): row for row in result.rows} for result in (old, new))
    # A run that times nothing has no rows that are there for their speed alone.
    judged = (key for key in before if key in after or not (new.settings.no_timing and key[1].endswith(ONE_PROCESS)))
    findings = [
        finding for key in dict.fromkeys([*judged, *after]) for finding in _of_row(key, before.get(key), after.get(key))
    ]
    return Comparison(tuple(findings), (*differences, *_conditions(old, new)))


def _of_row(key: tuple[str, str], old: Row | None, new: Row | None) -> Iterator[Finding]:
    """The verdicts of one row, which may be in one of the results only."""
    name = f"{key[1]}, {key[0]}"
    yield Finding(name, "row", "", _verdict(old), _verdict(new))
    if old is None or new is None or old.error is None or new.error is None:
        return
    for kind, read in (("check", _checks), ("layer", _layers), ("output", _outputs)):
        before, after = read(old), read(new)
        for what in dict.fromkeys([*before, *after]):
            yield Finding(name, kind, f"{kind} {what}", before.get(what, "-"), after.get(what, "-"))


def _verdict(row: Row | None) -> str:
    if row is None:
        return "-"
    return "no verdict" if row.outcome == "ok" else str(row.outcome)


def _checks(row: Row) -> dict[str, str]:
    """The training-parity checks of a row."""
    training = row.training
    if training is None:
        return {}
    found = {check.label: check.verdict.value for check in training.checks}
    found |= {f"end losses {ends.loss!r}" if ends.loss else "end losses": ends.verdict.value for ends in training.ends}
    return found


def _layers(row: Row) -> dict[str, str]:
    return {each.layer: each.verdict.value for each in row.layers.layers} if row.layers is not None else {}


def _outputs(row: Row) -> dict[str, str]:
    tensors = row.error.tensors if row.error is not None else ()
    return {f"{each.output}, case {each.case}": each.verdict.value for each in tensors if each.verdict is not None}


# -- settings, versions, machine --------------------------------------------------------------------------------------


def _conditions(old: Result, new: Result) -> Iterator[str]:
    """Sentences on settings, versions, machine, weights and inputs that differ."""
    yield from _changes("", {"xverify": old.xverify}, {"xverify": new.xverify})
    yield from _changes("machine: ", *({name: getattr(each.host, name) for name in HOST} for each in (old, new)))
    yield from dict.fromkeys(_environments(old, new))
    for before, after in _pairs(old, new):
        task = f"{before.tasks[0]}: "
        yield from _changes(f"{task}setting ", _settings(before.settings), _settings(after.settings))
        digests = ({"weights": each.weights.digest, "inputs": each.inputs.digest} for each in (before, after))
        yield from _changes(f"{task}digest of the ", *digests)


def _pairs(old: Result, new: Result) -> list[tuple[Result, Result]]:
    """The tasks that both results have."""
    return [(one, other) for one in old.by_task() for other in new.by_task() if one.tasks == other.tasks]


def _environments(old: Result, new: Result) -> Iterator[str]:
    """The versions and settings that frameworks say of themselves."""
    for before, after in _pairs(old, new):
        yield from _changes("reference: ", before.reference.environment, after.reference.environment)
    rows = {(row.task, row.subject): row for row in new.rows}
    for row in old.rows:
        other = rows.get((row.task, row.subject))
        if other is not None and row.environment and other.environment:
            yield from _changes(f"{row.subject}: ", row.environment, other.environment)


def _settings(settings: Settings) -> dict[str, object]:
    return {each.name: getattr(settings, each.name) for each in fields(settings) if each.name not in OF_PLACE}


def _changes(what: str, old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    """A sentence about each value that differs."""
    for name in dict.fromkeys([*old, *new]):
        if old.get(name) != new.get(name):
            yield f"{what}{name} was {_shown(old.get(name))}, is {_shown(new.get(name))}"


def _shown(value: object) -> str:
    text = " ".join(str(value).split())
    return text if len(text) <= 80 else f"{text[:80]}…"


def packages(old: Packages, new: Packages) -> Iterator[str]:
    """A sentence for each interpreter whose packages differ."""
    for python in dict.fromkeys([*old, *new]):
        before, after = old.get(python), new.get(python)
        where = f"packages of {python}" if python else "packages"
        if not before or not after:
            if python and before:
                yield f"{where}: not known now"
            continue
        changes = [
            f"{name} {before.get(name, 'absent')} → {after.get(name, 'absent')}"
            for name in sorted({*before, *after}, key=str.lower)
            if before.get(name) != after.get(name)
        ]
        if changes:
            more = f", and {len(changes) - MOST_PACKAGES} more" if len(changes) > MOST_PACKAGES else ""
            yield f"{where}: {len(changes)} differ: {', '.join(changes[:MOST_PACKAGES])}{more}"


def adapters(old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[str]:
    """A sentence about each adapter of the user's own whose file differs."""
    for name in sorted({*old, *new}):
        before, after = (digests.get(name, "xverify's own")[:19] for digests in (old, new))
        if before != after:
            yield f"adapter {name}: its file was {before}, is {after}"
