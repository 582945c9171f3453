"""Runs clean ports of tests/ports, plants faults in them, and counts what the verdict says.

python suites/ports.py [--only LIST] [--frameworks LIST] [--part N/M] [--clean | --faults]

A port is a model folder: spec.py, torch.py, and the same model in other frameworks, in styles that people write, or rewritten in
torch (torch-fused.py). Its faults.toml has

    needs = ["diffusers"]    # modules without which the port is left out
    glue = ["relu"]          # layers of torch.py that a port computes in glue code, so that they are judged together with it
    train = ["torch-fused"]  # files that are also trained, with SGD and with Adam

    [glue_in]
    torch-folded = ["bn"]  # the same for one file alone

    [drift]
    jittor = "norm"        # a layer in which this framework loses digits: the clean port may be DRIFT, when it is told as that

    [[fault]]
    port = "jittor"        # the file jittor.py
    file = "names.toml"    # optional: the file that is changed, where it is another one
    old = "nn.gelu(x)"     # text that occurs once in the file
    new = "nn.relu(x)"
    kind = "glue"          # "glue": in glue code; "layer": a layer, its options, its weights
    at = "fc2"             # the layer that computes something else; for glue code the layer that receives the wrong value; where
                           # training alone shows it and no layer is wrong, the training-parity check
    says = "ReLU"          # regular expression that an explanation must match; none may be given when it is left out
    task = "train"         # optional: the fault shows in training alone
    hidden = "why"         # optional: why no input of the specification reveals the fault; its row must be EQUAL

Every clean port must be EQUAL in every framework, with every layer judged, and without an explanation. Every fault that is not
hidden must be DIFFERENT, or DRIFT with its name, and found at its place. The first layer that differs may not be explained wrongly.
Otherwise the exit code is 1. A clean port also counts as EQUAL when it is DRIFT by a layer of [drift] alone, and the report says
that the sums of this layer lose digits.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tables import table

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

from xverify import run
from xverify.environments import store as environments
from xverify.errors import XverifyError
from xverify.framework import discovery
from xverify.host import missing
from xverify.processes import forking
from xverify.results.layers import LayerError
from xverify.results.records import Row
from xverify.results.verdicts import Verdict

PORTS = Path(__file__).parents[1] / "tests" / "ports"
# The mode in which a framework's ports run.
MODES = {
    "jittor": "jittor:eager",
    "tensorflow": "tensorflow:graph",
    "flax": "flax:jit",
    "paddle": "paddle:eager",
    "torch": "torch:eager",
    "jax": "jax",
}
REFERENCE = "torch"
OPTIMIZERS = ("sgd", "adam")
COLUMNS = (
    "rows", "EQUAL", "layers", "judged", "faults", "visible", "caught", "placed", "explained", "wrongly", "not", "WRONG",
)  # fmt: skip


@dataclass(frozen=True)
class Fault:
    """A change of one port's source; the fields are those of faults.toml. steps: those of tests/steps, see steps.py."""

    port: str
    old: str
    new: str
    kind: str
    at: str
    says: str = ""
    hidden: str = ""
    file: str = ""
    task: str = "forward"
    steps: int = 3

    def plant(self, folder: Path) -> None:
        """Change the port in a folder. Raises ValueError when the text does not occur exactly once."""
        file = folder / (self.file or f"{self.port}.py")
        text = file.read_text()
        if text.count(self.old) != 1:
            raise ValueError(f"{file}: {self.old!r} occurs {text.count(self.old)} times; it must occur once")
        file.write_text(text.replace(self.old, self.new))


@dataclass(frozen=True)
class Port:
    """A folder of tests/ports.

    files: names of the ports, such as "tensorflow" and "torch-fused".
    glue: the layers of torch.py that ports compute in glue code. needs: modules. train: names of the ports that are also trained.
    drift: framework -> the layer in which it loses digits. glue_in: name of a port -> further such layers of it alone.
    """

    folder: Path
    files: tuple[str, ...]
    faults: tuple[Fault, ...]
    glue: tuple[str, ...]
    needs: tuple[str, ...] = ()
    train: tuple[str, ...] = ()
    drift: Mapping[str, str] = field(default_factory=dict)
    glue_in: Mapping[str, Sequence[str]] = field(default_factory=dict)

    @classmethod
    def read(cls, folder: Path) -> Port:
        """The port in a folder."""
        table = tomllib.loads((folder / "faults.toml").read_text())
        faults = tuple(Fault(**{"kind": "step"} | fault) for fault in table.get("fault", ()))
        found = {file.stem for file in folder.glob("*.py")} - {REFERENCE}
        files = tuple(name for framework in MODES for name in sorted(found) if framework_of(name) == framework)
        lists = (tuple(table.get(name, ())) for name in ("glue", "needs", "train"))
        return cls(folder, files, faults, *lists, table.get("drift", {}), table.get("glue_in", {}))

    def of(self, frameworks: Sequence[str]) -> list[str]:
        """The ports in these frameworks."""
        return [name for name in self.files if framework_of(name) in frameworks]

    def lacks(self) -> list[str]:
        """The modules that it needs and that are not installed."""
        return [name for name in self.needs if importlib.util.find_spec(name) is None]


def ports(folder: Path = PORTS) -> list[Port]:
    """All ports of a folder with a faults.toml, by name."""
    return [Port.read(file.parent) for file in sorted(folder.glob("*/faults.toml"))]


def is_installed(framework: str) -> bool:
    """Whether a framework is installed, here or in an environment of ``xverify env``."""
    adapter = discovery.load(framework)
    return not missing(adapter) or environments.chosen(adapter) is not None


def framework_of(port: str) -> str:
    """The framework of a port: torch for torch-fused."""
    return port.partition("-")[0]


def subject(port: str) -> str:
    """The subject of a port: torch-fused:eager for torch-fused."""
    return port + MODES[framework_of(port)].removeprefix(framework_of(port))


def rows(folder: Path, names: Sequence[str], **settings: Any) -> dict[str, Row]:
    """Port -> its row. Nothing is timed. settings: of ``xverify.run``."""
    subjects = [subject(name) for name in (REFERENCE, *names)]
    result = run(folder, subjects, no_timing=True, cases=2, timeout=600.0, **settings)
    return {row.subject.partition(":")[0]: row for row in result.rows}


def judge_clean(row: Row, glue: Sequence[str], drift: str = "") -> tuple[Counter[str], list[str]]:
    """Counts of a right port, and what is wrong in the answer. drift: the layer that may lose digits."""
    layers = row.layers
    if row.error is None or layers is None:
        return Counter(rows=1), [f"{row.status}: {row.reason or 'no layers were judged'}"]
    left = set(layers.missing) - set(layers.uncalled) - set(glue)
    others = [layer for layer in layers.layers if layer.layer != drift or "lose digits" not in _text(layer)]
    drifts = len(others) < len(layers.layers) and all(layer.verdict <= Verdict.EQUAL for layer in others)
    right = row.error.verdict <= (Verdict.DRIFT if drifts else Verdict.EQUAL)
    counts = Counter(rows=1, EQUAL=int(right), layers=layers.known, judged=layers.compared)
    wrong = []
    if not right:
        wrong.append(f"{row.error.verdict}: {row.error.reason}")
    if left or layers.partial or layers.stopped:
        names = ", ".join(sorted(left | set(layers.partial)))
        wrong.append(f"not judged by themselves: {names or layers.stopped}")
    wrong += [f"a right layer is explained: {layer.layer} {_text(layer)}" for layer in others if _text(layer)]
    return counts, wrong


def judge_fault(row: Row, fault: Fault) -> tuple[Counter[str], list[str], str]:
    """Counts of a planted fault, what is wrong in the answer, and what the answer says."""
    counts = Counter(faults=1, visible=int(not fault.hidden))
    if row.error is None:
        return counts, [f"{row.status}: {row.reason}"], ""
    first = row.layers.first if row.layers else None
    checks = row.training.checks if row.training else ()
    check = next((check for check in checks if check.verdict > Verdict.EQUAL), None)
    text = _text(first) if first else ""
    said = f"{row.error.verdict}: {row.error.reason or ''}"
    if fault.hidden:
        return counts, [] if row.error.verdict <= Verdict.EQUAL else ["hidden, and caught"], said
    wrong = []
    named = bool(fault.says and re.search(fault.says, text or (check.says if check else "")))
    caught = row.error.verdict >= Verdict.DIFFERENT or (row.error.verdict == Verdict.DRIFT and named)
    if first is not None:
        placed, place = first.layer == fault.at and _side(first, fault.kind), f"at {first.faulty} of {first.layer}"
    else:
        placed, place = check is not None and check.name == fault.at, f"at {check.name}" if check else "nowhere"
    counts.update(caught=int(caught), placed=int(placed), explained=int(caught and named))
    counts.update({"wrongly": int(bool(text) and not named), "not": int(caught and not (text or named))})
    if not caught:
        wrong.append("missed")
    elif not placed:
        wrong.append(f"placed {place}")
    if text and not named:
        wrong.append(f"explained wrongly: {text}")
    return counts, wrong, said


def _text(layer: LayerError) -> str:
    """All that explains a layer, or the glue code before it."""
    return "; ".join(filter(None, (layer.explanation, layer.glue)))


def _side(layer: LayerError, kind: str) -> bool:
    """Whether a fault is placed in the layer or in the code before it, as it should be."""
    return bool(layer.joined) or layer.faulty == ("input" if kind == "glue" else "output")


def tell(head: str, wrong: Sequence[str], said: str, seconds: float) -> None:
    """Print one line of what is being done, and one for each wrong answer."""
    print(f"  {'WRONG' if wrong else 'right'} {seconds:5.1f} s  {head}: {said}", flush=True)
    for line in wrong:
        print(f"        {line}", flush=True)


def check_clean(port: Port, names: Sequence[str]) -> Counter[str]:
    """Run a port as it is, and train those of its files that are trained."""
    found = clean_run(port, names, "clean")
    trained = [name for name in names if name in port.train]
    for optimizer in OPTIMIZERS if trained else ():
        found += clean_run(port, trained, f"clean, trained with {optimizer}", task="train", optimizer=optimizer)
    return found


def clean_run(port: Port, names: Sequence[str], head: str, **settings: Any) -> Counter[str]:
    """Run these files of a port. head: what the printed lines begin with. settings: of ``xverify.run``."""
    found: Counter[str] = Counter()
    begun = time.monotonic()
    try:
        by_name = rows(port.folder, names, **settings)
    except XverifyError as error:
        tell(head, [str(error)], "", time.monotonic() - begun)
        return Counter(WRONG=1)
    for name in names:
        row = by_name[name]
        counts, wrong = judge_clean(row, (*port.glue, *port.glue_in.get(name, ())), port.drift.get(name, ""))
        verdict = row.error.verdict if row.error else row.status
        said = f"{verdict}, {counts['judged']} of {counts['layers']} layers judged by themselves"
        tell(f"{head}, {name}", wrong, said, time.monotonic() - begun)
        found += counts + Counter(WRONG=len(wrong))
    return found


@contextmanager
def planted(port: Port, fault: Fault) -> Iterator[Path]:
    """A copy of the folder of a port with a fault in it, while the context lasts."""
    with tempfile.TemporaryDirectory(prefix="port-") as space:
        folder = Path(space) / port.folder.name
        shutil.copytree(port.folder, folder, ignore=shutil.ignore_patterns("__pycache__"))
        fault.plant(folder)
        yield folder


def check_fault(port: Port, fault: Fault) -> Counter[str]:
    """Plant one fault in a copy of a port, and run that file alone."""
    begun = time.monotonic()
    with planted(port, fault) as folder:
        try:
            counts, wrong, said = judge_fault(rows(folder, [fault.port], task=fault.task)[fault.port], fault)
        except XverifyError as error:
            counts, wrong, said = Counter(faults=1), [str(error)], ""
    tell(f"{fault.port}, {fault.kind} at {fault.at}: {first_line(fault.new)}", wrong, said, time.monotonic() - begun)
    return counts + Counter(WRONG=len(wrong))


def first_line(text: str) -> str:
    return (text.strip().splitlines() or ["(left out)"])[0]


def part_of(total: Iterator[tuple[Port, Fault | None]], part: str) -> list[tuple[Port, Fault | None]]:
    """The N-th of M parts, "N/M", which takes every M-th item, so that it has something of everything."""
    number, _, parts = part.partition("/")
    return [item for place, item in enumerate(total) if place % int(parts) == int(number) - 1]


def items(
    chosen: Sequence[Port], frameworks: Sequence[str], clean: bool, faults: bool
) -> Iterator[tuple[Port, Fault | None]]:
    """Everything to do: each port as it is (None), and with each of its faults."""
    for port in chosen:
        if clean and port.of(frameworks):
            yield port, None
        yield from ((port, fault) for fault in port.faults if faults and framework_of(fault.port) in frameworks)


@dataclass(frozen=True)
class Suite:
    """A suite of ports and its checks, which print what they do and return counts.

    says: what it does. folder: of its ports. what: what its table has in a row, such as "port". columns: of the table.
    clean: checks files of a port as they are. fault: checks a port with one fault.
    """

    says: str
    folder: Path
    what: str
    columns: Sequence[str]
    clean: Callable[[Port, Sequence[str]], Counter[str]]
    fault: Callable[[Port, Fault], Counter[str]]


def main(suite: Suite) -> int:
    """Check what the command line asks for. Returns the exit code."""
    with forking.kept():  # each framework is imported once
        return check_all(parser(suite.says).parse_args(), suite)


def parser(says: str) -> argparse.ArgumentParser:
    """The options of a suite of ports. says: what the suite does."""
    parser = argparse.ArgumentParser(description=says)
    parser.add_argument("--only", default="", help="names of ports (default: all)")
    parser.add_argument(
        "--frameworks", default=",".join(MODES), help="run these alone (default: all that are installed)"
    )
    parser.add_argument("--part", default="1/1", help="every M-th item, from the N-th on (default: %(default)s)")
    parser.add_argument("--clean", action="store_true", help="the clean ports alone")
    parser.add_argument("--faults", action="store_true", help="the faults alone")
    return parser


def check_all(asked: argparse.Namespace, suite: Suite) -> int:
    """Check what these arguments ask for. Returns the exit code."""
    wanted = asked.only.split(",") if asked.only else []
    chosen = [port for port in ports(suite.folder) if not wanted or port.folder.name in wanted]
    frameworks = [name for name in asked.frameworks.split(",") if is_installed(name)]
    everything = items(chosen, frameworks, not asked.faults, not asked.clean)
    counts: dict[str, Counter[str]] = {}
    begun = time.monotonic()
    for port, fault in part_of(everything, asked.part):
        name = port.folder.name
        if port.lacks():
            print(f"{name}: left out, because {', '.join(port.lacks())} is not installed", flush=True)
            continue
        if name not in counts:
            print(f"{name}:", flush=True)
        found = suite.clean(port, port.of(frameworks)) if fault is None else suite.fault(port, fault)
        counts.setdefault(name, Counter()).update(found)
    print(f"\n{table(counts, suite.columns, suite.what)}\n")
    wrong = sum(count["WRONG"] for count in counts.values())
    passed = bool(counts) and not wrong
    seconds = time.monotonic() - begun
    print(f"{'PASS' if passed else 'FAIL'}: {len(counts)} {suite.what}s, {wrong} wrong answers; {seconds:.0f} s")
    return 0 if passed else 1


PORTS_SUITE = Suite((__doc__ or "").splitlines()[0], PORTS, "port", COLUMNS, check_clean, check_fault)

if __name__ == "__main__":
    raise SystemExit(main(PORTS_SUITE))
