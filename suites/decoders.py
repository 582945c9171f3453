"""Runs the decoders of tests/decoders in every way, as they are and with planted faults, and counts what the verdict says.

python suites/decoders.py [--only LIST] [--seeds FROM-TO] [--jobs N] [--device NAME] [--clean | --faults | --exported | --files]

A family is a model folder: spec.py, torch.py with a tiny model of transformers, and torch-port.py with the same model written by
hand. Its faults.toml has

    not_tried = ["3 tokens taken back"]  # ways that do not apply to the family; all others must be EQUAL
    ties = true                          # optional: two tokens are equally good, and at least one way must tell it
    not_exported = "state of all tokens" # optional: regular expression of why torch exports no ONNX file with its cache

    [[fault]]
    old = "torch.arange(past, past + t)"  # text that occurs once in torch-port.py
    new = "torch.arange(t)"
    way = "steps"            # regular expression of the first way that fails; "layers": the full pass shows it, by layers
    at = "layers.0"          # regular expression of the place: the layer, or the layers around the glue code
    says = "positions"       # regular expression of the true cause; it may be told without one
    hidden = "why"           # optional: why no way shows the fault; its row must be EQUAL
    graph = "late"           # in place of old and new: a fault of tests/helpers/decoderfiles.py in the ONNX file of torch.py

Every right model must be EQUAL in every way, with every seed. Every fault that is not hidden must be DIFFERENT or INVALID at its
place, and not explained wrongly. Otherwise the exit code is 1.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

from tables import conclude, named, table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from xverify import run
from xverify.errors import XverifyError
from xverify.processes import forking
from xverify.results.records import Row
from xverify.results.verdicts import Verdict

TESTS = Path(__file__).parents[1] / "tests"
sys.path.insert(0, str(TESTS))
from helpers.decoderfiles import changed, exported  # noqa: E402

FAMILIES = TESTS / "decoders"
TORCH, PORT = "torch", "torch-port"
EXPORTS = ("onnxruntime", "openvino")  # what runs the export of torch.py
COLUMNS = (
    *("right", "EQUAL", "no export", "ways", "not tried", "ties"),
    *("faults", "visible", "caught", "placed", "named", "wrongly", "none", "missed", "WRONG"),
)
LAYERS = "layers"  # the way of a fault that the full pass shows


@dataclass(frozen=True)
class Fault:
    """A change of torch-port.py, or of the ONNX file of torch.py; the fields are those of faults.toml."""

    old: str = ""
    new: str = ""
    way: str = ""
    at: str = ""
    says: str = ""
    hidden: str = ""
    graph: str = ""

    def plant(self, folder: Path) -> None:
        """Change the file in a folder. Raises ValueError when the text does not occur exactly once."""
        file = folder / f"{PORT}.py"
        text = file.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{file}: {self.old!r} occurs {text.count(self.old)} times; it must occur once")
        file.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Family:
    """A folder of tests/decoders.

    files: its models. not_tried: the ways that do not apply. ties: whether one must be told. not_exported: why there is no export.
    """

    folder: Path
    files: tuple[str, ...]
    not_tried: tuple[str, ...]
    faults: tuple[Fault, ...]
    ties: bool
    not_exported: str = ""

    @classmethod
    def read(cls, folder: Path) -> Family:
        """The family in a folder."""
        found = tomllib.loads((folder / "faults.toml").read_text())
        files = tuple(name for name in (TORCH, PORT) if (folder / f"{name}.py").is_file())
        faults = tuple(Fault(**fault) for fault in found.get("fault", ()))
        not_tried, not_exported = tuple(found.get("not_tried", ())), found.get("not_exported", "")
        return cls(folder, files, not_tried, faults, found.get("ties", False), not_exported)


@dataclass(frozen=True)
class Item:
    """One thing to check: a file of a family with a seed, or with a fault. file: one of EXPORTS for the export of its torch.py."""

    family: Family
    file: str
    seed: int
    device: str
    fault: Fault | None = None

    @property
    def head(self) -> str:
        """What is checked, in words."""
        if self.fault is None:
            return f"{self.family.folder.name}, {self.file}, seed {self.seed}"
        new = self.fault.graph or " ".join(self.fault.new.split())[:70]
        return f"{self.name}, at {self.fault.at}: {new}"

    @property
    def name(self) -> str:
        """The name of the family, and whether the fault is one of its ONNX file."""
        return self.family.folder.name + ", file" * bool(self.fault and self.fault.graph)

    def row(self) -> Row:
        """Run it."""
        with tempfile.TemporaryDirectory(prefix="decoder-") as space:
            folder = Path(space) / self.family.folder.name
            shutil.copytree(self.family.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
            if self.fault is not None and self.fault.graph:
                file = changed(exported(Path(space), self.family.folder.name), self.fault.graph)
                return decoded(folder, f"port={file}", self.seed, self.device, weights=file.with_name("weights.pt"))
            if self.fault is not None:
                self.fault.plant(folder)
            return decoded(folder, self.file, self.seed, self.device)


def families(folder: Path = FAMILIES) -> dict[str, Family]:
    """All families, by name."""
    return {file.parent.name: Family.read(file.parent) for file in sorted(folder.glob("*/faults.toml"))}


def decoded(folder: Path, file: str, seed: int, device: str, **settings: object) -> Row:
    """The row of a file of a family."""
    subject = f"{file}:eager" if file in (TORCH, PORT) else file
    settings |= {"device": device} if device else {}
    return run(folder, [subject], task="decode", seed=seed, threads=1, cases=1, timeout=600.0, **settings).rows[-1]


def judge_right(row: Row, family: Family) -> tuple[Counter[str], list[str]]:
    """Counts of a right decoder, and what is wrong in the answer."""
    decoding = row.decoding
    if family.not_exported and row.framework in EXPORTS:
        wrong = [] if re.search(family.not_exported, row.reason or "") else [f"{row.status}: {row.reason}"]
        return Counter({"right": 1, "no export": 1}), wrong
    if row.error is None or decoding is None:
        return Counter(right=1), [f"{row.status}: {row.reason}"]
    wrong = [f"{each.name} is {each.verdict}: {each.says}" for each in decoding.ways if each.verdict > Verdict.EQUAL]
    if row.error.verdict > Verdict.EQUAL and not wrong:
        wrong = [f"{row.error.verdict}: {row.error.reason}"]
    wrong += [f"{name}: {why}" for name, why in decoding.not_tried.items() if name not in family.not_tried]
    wrong += [f"{each.name}: it was tried" for each in decoding.ways if each.name in family.not_tried]
    ties = [each for each in decoding.ways if each.token is not None]
    wrong += [f"{each.name}: a tie is not told: {each.says}" for each in ties if "rounding decides" not in each.says]
    if family.ties and not ties:
        wrong.append("no tie is told")
    counts = Counter(right=1, EQUAL=int(not wrong), ways=len(decoding.ways), ties=len(ties))
    return counts + Counter({"not tried": len(decoding.not_tried)}), wrong


def judge_fault(row: Row, fault: Fault) -> tuple[Counter[str], list[str]]:
    """Counts of a planted fault, and what is wrong in the answer."""
    counts = Counter(faults=1, visible=int(not fault.hidden))
    if row.error is None or row.decoding is None:
        return counts, [f"{row.status}: {row.reason}"]
    caught = row.error.verdict.fails
    if fault.hidden:
        return counts, ["hidden, and caught"] if caught else []
    first, layer = row.decoding.first, row.layers.first if row.layers else None
    if not caught or first is None:
        return counts + Counter(missed=1), ["missed"]
    if fault.way == LAYERS:
        placed = bool(re.search(fault.at, layer.layer if layer else first.place))
        told = "; ".join(filter(None, (*((layer.explanation, layer.glue) if layer else ()), first.explanation)))
    else:
        placed = first.step is not None and bool(re.search(fault.way, first.name) and re.search(fault.at, first.place))
        told = first.explanation
    rightly = bool(fault.says and re.search(fault.says, told))
    wrongly = bool(told) and not rightly
    counts.update(caught=1, placed=int(placed), named=int(rightly), wrongly=int(wrongly), none=int(not told))
    place = layer.layer if fault.way == LAYERS and layer else f"{first.name}, {first.place or 'nowhere'}"
    wrong = [] if placed else [f"placed at {place}"]
    return counts, [*wrong, *([f"explained wrongly: {told}"] if wrongly else [])]


def check(item: Item) -> tuple[str, Counter[str], list[str]]:
    """(name of the family, counts, lines to print) of one item."""
    begun = time.monotonic()
    try:
        row = item.row()
        counts, wrong = judge_fault(row, item.fault) if item.fault else judge_right(row, item.family)
        said = f"{row.error.verdict}: {row.error.reason or ''}" if row.error else row.status
    except XverifyError as error:
        counts, wrong, said = Counter(faults=1) if item.fault else Counter(right=1), [str(error)], ""
    lines = [f"  {'WRONG' if wrong else 'right'} {time.monotonic() - begun:5.1f} s  {item.head}: {said}"]
    return item.name, counts + Counter(WRONG=len(wrong)), [*lines, *(f"        {line}" for line in wrong)]


_kept = ExitStack()


def keep_templates() -> None:
    """Import each framework once in this process of a pool."""
    _kept.enter_context(forking.kept())


def check_all(items: list[Item], jobs: int) -> Iterator[tuple[str, Counter[str], list[str]]]:
    """Check all items, so many at a time."""
    if jobs == 1:
        with forking.kept():
            yield from map(check, items)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=keep_templates) as pool:
        yield from pool.map(check, items)


def seeds_of(text: str) -> range:
    """The seeds of "FROM-TO" or of "SEED"."""
    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no range of seeds: write FROM-TO, such as 0-9")
    return range(int(match[1]), int(match[2] or match[1]) + 1)


def main() -> int:
    """Check what the command line asks for. Returns the exit code."""
    known = families()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", default=",".join(known), help="names of families (default: all)")
    parser.add_argument(
        "--seeds", type=seeds_of, default=range(1), help="FROM-TO: every right model with these seeds (default: 0)"
    )
    parser.add_argument("--jobs", type=int, default=1, help="how many to check at a time (default: %(default)s)")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--clean", action="store_true", help="the right models alone")
    kinds.add_argument("--faults", action="store_true", help="the faults alone")
    kinds.add_argument(
        "--exported", action="store_true", help="the exports of torch.py alone, on ONNX Runtime and OpenVINO"
    )
    kinds.add_argument("--files", action="store_true", help="the faults of ONNX files alone")
    parser.add_argument("--device", default="", help="the device of the models, such as cuda (default: the CPU)")
    asked = parser.parse_args()
    chosen = [known[name] for name in named(parser, "--only", asked.only, known)]
    seeds = () if asked.faults or asked.files else asked.seeds
    items = [
        Item(family, file, seed, asked.device)
        for seed in seeds
        for family in chosen
        for file in (EXPORTS if asked.exported else family.files)
    ]
    if not asked.clean and not asked.exported:
        faults = [Item(family, PORT, 0, asked.device, fault) for family in chosen for fault in family.faults]
        items += [each for each in faults if not asked.files or each.fault.graph]
    counts: dict[str, Counter[str]] = {}
    begun = time.monotonic()
    for name, found, lines in check_all(items, asked.jobs):
        print("\n".join(lines), flush=True)
        counts.setdefault(name, Counter()).update(found)
    print(f"\n{table(counts, COLUMNS, 'family')}\n")
    return conclude(len(items), "decoders", sum(each["WRONG"] for each in counts.values()), begun)


if __name__ == "__main__":
    raise SystemExit(main())
