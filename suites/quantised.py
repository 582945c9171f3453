"""Plants mistakes of quantising in files of ONNX Runtime, and checks them and the right files against the float networks.

python suites/quantised.py [--networks LIST] [--schemes LIST] [--mistakes LIST] [--seeds N] [--jobs N] [--markdown]

Each mistake must be found and named: the reason has the layer. A wrong file must be DIFFERENT, a coarse one DRIFT, and a right one
EQUAL. The exit code is 1 when one is not. It is 2 on x86 processors without VNNI, whose int8 kernels are not exact, so that right
files are DIFFERENT there.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import onnx
import pool
from quantised_faults import MISTAKES, File, Mistake
from quantised_files import NETWORKS, SCHEMES, Network, Scheme, layer_of
from tables import conclude, named

from xverify import host
from xverify.checking.api import check
from xverify.results.records import Row
from xverify.results.verdicts import Verdict

RIGHT = "right"


@dataclass(frozen=True)
class Answer:
    """What a check says about one file. named: whether the reason names the layer. good: whether that is the right answer."""

    network: str
    scheme: str
    mistake: str
    verdict: str
    named: bool
    good: bool
    says: str

    def __str__(self) -> str:
        where = f"{self.network}, {self.scheme}, {self.mistake}"
        return f"{'' if self.good else 'WRONG '}{where}: {self.verdict}{', named' if self.named else ''}; {self.says}"


def fits(mistake: Mistake, scheme: Scheme) -> bool:
    """Whether a mistake can be made with a scheme."""
    return {"weights": True, "static": scheme.static, "blocks": scheme.bits == 4}[mistake.where]


def planted(model: onnx.ModelProto, network: Network, scheme: Scheme, mistake: Mistake) -> tuple[onnx.ModelProto, str]:
    """The quantised model with a mistake, and the layer that has it."""
    layer = network.behind_relu if mistake.relu else layer_of(network, scheme)
    file = File(model, layer)
    mistake.plant(file)
    return file.model, layer


def verdicts(rows: Sequence[Row]) -> tuple[Verdict, str, bool]:
    """The worst verdict of both rows of a file, their reasons, and whether the row of the runtime is right."""
    errors = [row.error for row in rows if row.error is not None]
    if not errors or len(errors) < len(rows):
        return Verdict.INVALID, "; ".join(row.reason or row.status for row in rows), False
    runtime = [row.error.verdict for row in rows if row.error is not None and row.task == "runtime"]
    says = "; ".join(error.reason or "" for error in errors)
    return max(error.verdict for error in errors), says, max(runtime, default=Verdict.UNTESTED) <= Verdict.EQUAL


def judged(rows: Sequence[Row], names: tuple[str, str], mistake: Mistake | None, layer: str) -> Answer:
    """The answer on one file. names: of the network and the scheme. mistake: None for a right file."""
    verdict, says, runtime = verdicts(rows)
    named = mistake is not None and layer in says
    if mistake is None:
        good = verdict <= Verdict.EQUAL
    elif mistake.coarse:
        good = named and verdict == Verdict.DRIFT
    else:
        good = named and verdict == Verdict.DIFFERENT
    text = says if runtime or mistake is None else f"the runtime is not right; {says}"
    return Answer(*names, RIGHT if mistake is None else mistake.name, str(verdict), named, good, text)


@dataclass(frozen=True)
class Group:
    """Files of one network by one scheme, which are checked together. files: the mistake, None for none, and the layer of each."""

    network: str
    scheme: str
    plain: Path
    files: Mapping[Path, tuple[Mistake | None, str]]

    def answers(self) -> list[Answer]:
        """Check the files, with the float network opened and evaluated once."""
        result = check(list(self.files), against=str(self.plain), threads=1, timeout=300.0)
        return [
            judged([row for row in result.rows if row.subject == file.name], (self.network, self.scheme), *what)
            for file, what in self.files.items()
        ]


def groups(place: Path, networks: list[str], schemes: list[str], mistakes: list[str], seeds: int) -> Iterator[Group]:
    """All files: right ones of several seeds, and wrong ones of the first."""
    for name in networks:
        for seed in range(seeds):
            network, plain = NETWORKS[name](seed), place / f"{name}-{seed}.onnx"
            onnx.save(network.model(), plain)
            for kind in schemes:
                scheme, folder = SCHEMES[kind], place / f"{name}-{kind}-{seed}"
                folder.mkdir()
                model = scheme.quantise(network.model(), folder)
                wrong = [each for each in MISTAKES if each.name in mistakes and fits(each, scheme)] if not seed else []
                files = {}
                for mistake in [*([None] if RIGHT in mistakes else []), *wrong]:
                    changed, layer = planted(model, network, scheme, mistake) if mistake else (model, "")
                    file = folder / f"{mistake.name if mistake else RIGHT}.onnx"
                    onnx.save(changed, file)
                    files[file] = mistake, layer
                if files:
                    yield Group(name, kind, plain, files)


def table(found: list[Answer]) -> Iterator[str]:
    """A row for each mistake: how many files have it, and how many of them are found and named."""
    yield "| mistake | files | found and named | verdicts |"
    yield "|---|---|---|---|"
    for mistake in dict.fromkeys(each.mistake for each in found):
        these = [each for each in found if each.mistake == mistake]
        counts = {
            verdict: sum(each.verdict == verdict for each in these)
            for verdict in sorted({each.verdict for each in these})
        }
        good = "" if mistake == RIGHT else str(sum(each.good for each in these))
        yield f"| {mistake} | {len(these)} | {good} | {', '.join(f'{count} {name}' for name, count in counts.items())} |"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--networks", default=",".join(NETWORKS), help="networks (default: all of them)")
    parser.add_argument(
        "--schemes", default=";".join(SCHEMES), help="schemes, with ; between them (default: all of them)"
    )
    every = ",".join([RIGHT, *(each.name for each in MISTAKES)])
    parser.add_argument(
        "--mistakes", default=every, help=f"mistakes, and {RIGHT} for right files (default: all of them)"
    )
    parser.add_argument("--seeds", type=int, default=3, help="seeds of the right files (default: %(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="checks at a time (default: %(default)s)")
    parser.add_argument("--markdown", action="store_true", help="print the table of the documentation")
    asked = parser.parse_args()
    if host.saturates_int8():
        parser.error(
            "int8 kernels of this processor saturate sums of two products (no VNNI): right files are DIFFERENT here"
        )
    networks = named(parser, "--networks", asked.networks, NETWORKS)
    schemes = named(parser, "--schemes", asked.schemes, SCHEMES, ";")
    mistakes = named(parser, "--mistakes", asked.mistakes, every.split(","))
    begun, found = time.monotonic(), []
    with tempfile.TemporaryDirectory(prefix="quantised-") as place, pool.lend(), ThreadPoolExecutor(asked.jobs) as work:
        for answers in work.map(Group.answers, groups(Path(place), networks, schemes, mistakes, asked.seeds)):
            found += answers
            print(*answers, sep="\n", flush=True)
    wrong = [each for each in found if not each.good]
    if asked.markdown:
        print("\n".join(table(found)))
    return conclude(len(found), "files", len(wrong), begun)


if __name__ == "__main__":
    sys.exit(main())
