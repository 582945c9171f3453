"""Trains models on several ranks as they are, plants faults in them, and counts what the verdict says.

python suites/ranks.py [--only LIST] [--ranks LIST]

A kind is a folder of tests/ranks/kinds: spec.py, and torch.py, whose ``parallelize`` says how ranks train the model. Its
faults.toml has

    plan = "own"           # see xverify run --plan
    ranks = [2, 4]         # numbers of ranks with which it is run
    shards = [3, 1]        # optional

    [[fault]]
    old = "gradient /= count"  # text that occurs once in torch.py
    new = "pass"
    at = "^gradients, step 0"  # regular expression of the first check that fails
    says = "summed"            # regular expression of what names the fault, in any check; none when it is left out

A kind and all its faults are the subjects of one run. The right one must be EQUAL, and every fault DIFFERENT or INVALID at
its place. Otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

try:
    import tomllib
except ModuleNotFoundError:  # before Python 3.11
    import tomli as tomllib

from ports import first_line, tell
from tables import table

from xverify import run
from xverify.results.records import Result, Row

KINDS = Path(__file__).parents[1] / "tests" / "ranks" / "kinds"
COLUMNS = ("right", "EQUAL", "faults", "caught", "placed", "named", "WRONG")


@dataclass(frozen=True)
class Fault:
    """A change of torch.py; the fields are those of faults.toml."""

    old: str
    new: str
    at: str
    says: str = ""


@dataclass(frozen=True)
class Kind:
    """A folder of KINDS."""

    folder: Path
    plan: str
    ranks: tuple[int, ...]
    faults: tuple[Fault, ...]
    shards: tuple[int, ...] = ()

    @classmethod
    def read(cls, folder: Path) -> Kind:
        """The kind in a folder."""
        known = tomllib.loads((folder / "faults.toml").read_text())
        faults = tuple(Fault(**each) for each in known["fault"])
        return cls(folder, known["plan"], tuple(known["ranks"]), faults, tuple(known.get("shards", ())))

    def planted(self, folder: Path) -> Path:
        """A copy of the folder with a file for each fault, torch-1.py and so on. Raises ValueError when one cannot be planted."""
        shutil.copytree(self.folder, folder, ignore=shutil.ignore_patterns("__pycache__", "faults.toml"))
        text = (self.folder / "torch.py").read_text()
        for number, fault in enumerate(self.faults):
            if text.count(fault.old) != 1:
                raise ValueError(f"{self.folder.name}: {fault.old!r} occurs {text.count(fault.old)} times in torch.py")
            (folder / f"torch-{number}.py").write_text(text.replace(fault.old, fault.new))
        return folder

    def judged(self, count: int, **settings: Any) -> Result:
        """The result of the kind and all its faults with this number of ranks."""
        with tempfile.TemporaryDirectory() as space:
            folder = self.planted(Path(space, self.folder.name))
            names = ["torch", *(f"torch-{number}" for number in range(len(self.faults)))]
            return run(folder, [f"{name}:eager" for name in names], task="train", ranks=count, plan=self.plan, shards=self.shards,
                       threads=count, no_timing=True, timeout=120.0, **settings)  # fmt: skip


def kinds() -> Iterator[Kind]:
    """All kinds, by name."""
    return (Kind.read(each.parent) for each in sorted(KINDS.glob("*/faults.toml")))


def judge_right(row: Row) -> tuple[Counter[str], list[str]]:
    """Counts of a right row, and what is wrong in it."""
    right = row.error is not None and row.error.verdict.name == "EQUAL"
    wrong = (
        [] if right else [f"{row.error.verdict}: {row.error.reason}" if row.error else f"{row.status}: {row.reason}"]
    )
    return Counter(right=1, EQUAL=int(right)), wrong


def judge_fault(row: Row, fault: Fault) -> tuple[Counter[str], list[str]]:
    """Counts of a planted fault, and what is wrong in the answer."""
    counts = Counter(faults=1)
    if row.error is None or row.training is None:
        return counts, [f"{row.status}: {row.reason}"]
    texts = [f"{check.label}: {check.says}" for check in row.training.told]
    if not row.error.verdict.fails or not texts:
        return counts, ["missed"]
    placed, named = (
        bool(re.search(fault.at, texts[0])),
        bool(fault.says) and any(re.search(fault.says, each) for each in texts),
    )
    counts.update(caught=1, placed=int(placed), named=int(named))
    wrong = [] if placed else [f"placed elsewhere than at {fault.at}"]
    return counts, [*wrong, *([f"not named: {fault.says}"] if fault.says and not named else [])]


def check(kind: Kind, count: int) -> Counter[str]:
    """Run a kind with this number of ranks, and tell of each row."""
    begun, counts = time.monotonic(), Counter[str]()
    rows = kind.judged(count).rows
    for row, fault in zip(rows, [None, *kind.faults]):
        found, wrong = judge_right(row) if fault is None else judge_fault(row, fault)
        told = [f"{each.label}: {each.says}" for each in row.training.told] if row.training else [row.reason or ""]
        head = f"{kind.folder.name} on {count}, {first_line(fault.new) if fault else 'right'}"
        tell(head, wrong, " | ".join(told), time.monotonic() - begun)
        counts += found + Counter(WRONG=len(wrong))
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    """Check what the command line asks for. Returns the exit code."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default="", metavar="LIST", help="kinds, with commas between them")
    parser.add_argument("--ranks", default="", metavar="LIST", help="numbers of ranks, instead of those of each kind")
    asked = parser.parse_args(arguments)
    rows: dict[str, Counter[str]] = {}
    for kind in kinds():
        if asked.only and kind.folder.name not in asked.only.split(","):
            continue
        for count in [int(each) for each in asked.ranks.split(",")] if asked.ranks else kind.ranks:
            rows[f"{kind.folder.name}, {count} ranks"] = check(kind, count)
    print(table(rows, COLUMNS, "kind"))
    return int(any(each["WRONG"] for each in rows.values()))


if __name__ == "__main__":
    raise SystemExit(main())
