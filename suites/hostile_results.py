"""Mutated result files: `explain`, `diff`, `report` and `--resume` must read them, or refuse them in one line.

`history` must read a folder with all of them.
"""

from __future__ import annotations

import contextlib
import copy
import importlib.util
import io
import json
import random
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import damage

import xverify.engine.resume
from xverify.commands._main import main as command
from xverify.errors import UsageError
from xverify.reference.request import resolve

# Runs whose result files are mutated: one of a small folder, and one with layers, training, receipts of two tasks, and a row that
# cannot run.
RUNS = {
    "forward": ("FOLDER", "--subjects", "numpy"),
    "both tasks": ("mlp", "--subjects", "torch:eager,numpy", "--task", "forward,train", "--threads", "1"),
}
SPEC = """
from xverify import ModelSpec, TensorSpec
SPEC = ModelSpec(batch=4, inputs={"x": TensorSpec(("N", 8))}, outputs={"y": TensorSpec(("N", 3))})
"""
MODEL = """
import numpy as np

class Net:
    weights = {"w": np.ones((8, 3), np.float32)}

    def __call__(self, x):
        return x @ self.weights["w"]

def build():
    return Net()
"""
NESTED: list[Any] = []
for _ in range(200):
    NESTED = [NESTED]
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, 1, -1, 2**31, 2**63, -(2**70), 10**400, 0.0, -0.5, 1e-320, 1e308, -1e308, 0.1),
    *("", "x", "PASS", "EQUAL", "ok", "forward", "\x1b[31mred", "[red]x[/]", "[/]", "a\nb\r", "\u202e", "\x9b2J", "y" * 5000),
    *([], {}, [None], [[]], {"": 1}, NESTED, [1, "a"], {"a": NESTED}),
)  # fmt: skip
WHOLE = (
    b"", b"null", b"[]", b"{}", b"[" * 100_000, b'{"a":' * 50_000, b"\xff\xfe", b"\0" * 100, b'{"schema_version": NaN}',
    b'{"schema_version": 1, "rows": [], "reference": {}, "model": "m", "verdict": "PASS"}', b"1" * 10_000, b'"\xed\xa0\x80"',
)  # fmt: skip


def seeds(folder: Path) -> dict[str, Path]:
    """The result files of real runs, by name."""
    port = folder / "port"
    port.mkdir()
    (port / "spec.py").write_text(SPEC)
    (port / "numpy.py").write_text(MODEL)
    found = {}
    for name, (model, *rest) in RUNS.items():
        found[name] = folder / f"{name}.json"
        place = str(port) if model == "FOLDER" else model
        run = ["run", place, *rest, "--rerun", "8", "--cases", "2", "--quiet", "--json", str(found[name])]
        subprocess.run([sys.executable, "-m", "xverify", *run], check=False, cwd=folder, capture_output=True)
        if not found[name].exists():
            raise SystemExit(f"the run {name!r} has left no result file")
    return found


def mutant(original: bytes, chance: random.Random) -> bytes:
    """A mutated result file: mostly one to three changed values, otherwise changed bytes, or something else altogether."""
    kind = chance.random()
    if kind < 0.02:
        return chance.choice(WHOLE)
    if kind < 0.2:
        return damage.mutate(original, chance)
    values = json.loads(original)
    for _ in range(chance.randint(1, 3)):
        _change(values, chance)
    return json.dumps(values).encode()


def _change(values: Any, chance: random.Random) -> None:
    """Change one value at a random place, deeper places being as probable as the others of their parent."""
    parent, key = values, chance.choice(list(values))
    while isinstance(parent[key], (dict, list)) and parent[key] and chance.random() < 0.85:
        parent = parent[key]
        key = chance.choice(list(parent) if isinstance(parent, dict) else range(len(parent)))
    kind = chance.randrange(6)
    if kind == 0:
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.append(copy.deepcopy(parent[key]))
    elif kind == 2:
        other = chance.choice(list(values))
        parent[key] = copy.deepcopy(values.get(other))
    elif kind == 3 and isinstance(parent[key], (int, float)) and abs(parent[key]) < 2**63:
        parent[key] = parent[key] * chance.choice((-1, 0, 1e-9, 1e9, 1e300))
    else:
        parent[key] = chance.choice(VALUES)
    if not values:
        values["x"] = None


def _called(*words: str) -> str:
    """What is wrong with how a command answers; "" when it reads the file, or refuses it in one line with exit code 2."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = command(list(words))
    said = err.getvalue()
    strange = [letter for letter in out.getvalue() + said if letter != "\n" and not letter.isprintable()]
    if strange:
        return f"it prints the character {strange[0]!r}"
    if re.match(r"xverify \w*: unexpected", said):
        return said.strip()
    if code == 2:
        return "" if len(said.splitlines()) == 1 and not out.getvalue() else f"exit code 2 with {said!r}"
    return "" if code in (0, 1, 3, 4) and not said and out.getvalue() else f"exit code {code} with {said!r}"


def _resumed(path: Path, port: Path) -> str:
    request, folder = resolve(port, ["numpy"])
    try:
        earlier = xverify.engine.resume.earlier_run(path, request, folder)
    except UsageError as error:
        return "" if "\n" not in str(error) and str(error).isprintable() else f"refused with {error!s:.200}"
    if earlier is not None:
        earlier.finished(request)
        earlier.histories()
    return ""


def _reported(path: Path) -> str:
    """What is wrong with the reports in files of a result file; "" when both are made, or the file is refused."""
    page, cases = path.with_suffix(".html"), path.with_suffix(".xml")
    for file in (page, cases):
        file.unlink(missing_ok=True)
    err = io.StringIO()
    with contextlib.redirect_stderr(err):
        code = command(["report", str(path), "--html", str(page), "--junit", str(cases)])
    said = err.getvalue()
    if code == 2 and len(said.splitlines()) == 1 and not page.exists() and not cases.exists():
        return ""
    if code not in (0, 1, 3, 4) or len(said.splitlines()) != 1 or not said.endswith(f"; wrote {page}, {cases}\n"):
        return f"exit code {code} with {said!r}"
    ElementTree.parse(cases)
    return "" if page.read_text().count("<h1>") == 1 else "the page has no title, or two"


def _ways(good: Path, path: Path, port: Path) -> Iterator[tuple[str, Callable[[], str]]]:
    for words in (
        ("explain", str(path)),
        ("explain", str(path), "--faults"),
        ("diff", str(good), str(path), "--anyway"),
        ("diff", str(path), str(good), "--anyway", "--relative"),
        ("diff", str(path), str(path)),
        ("report", str(path), "--format", "markdown"),
        ("report", str(good), str(path), "--format", "csv"),
    ):
        yield " ".join((words[0], *words[3:])), lambda words=words: _called(*words)  # type: ignore[misc]
    yield "report to files", lambda: _reported(path)
    yield "--resume", lambda: _resumed(path, port)


def _history(folder: Path) -> str:
    """What is wrong with the history of a folder of mutated files; "" when it has every format, or DuckDB is not installed."""
    if importlib.util.find_spec("duckdb") is None:
        return ""
    written = [word for name in ("html", "markdown", "csv") for word in (f"--{name}", str(folder / f"history.{name}"))]
    try:
        return _called("history", "--results", str(folder), "--all", "--quiet", *written) or _called(
            "history", "--results", str(folder), "--all", "--format", "markdown", "--quiet"
        )
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def run(files: int, seed: str) -> tuple[dict[str, Counter[str]], list[str]]:
    """Read so many mutated files in every way. Returns the counts of each seed, and what was wrong."""
    counts, wrong = {}, []
    with tempfile.TemporaryDirectory(prefix="results-") as name:
        folder = Path(name)
        made = seeds(folder)
        for index, (kind, good) in enumerate(made.items()):
            counts[kind] = Counter[str]()
            original, path = good.read_bytes(), folder / "mutant.json"
            mutants = folder / f"mutants {index}"
            mutants.mkdir()
            for number in range(files // len(made) + (index < files % len(made))):
                content = mutant(original, random.Random(f"{seed} {kind} {number}"))
                path.write_bytes(content)
                (mutants / f"{number}.json").write_bytes(content)
                faults = []
                for way, call in _ways(good, path, folder / "port"):
                    try:
                        fault = call()
                    except BaseException as error:
                        fault = f"{type(error).__name__}: {error}"
                    if fault:
                        faults.append(f"result {kind}, file {number}, {way}: {fault[:300]}")
                counts[kind].update(("tried", "WRONG" if faults else "right"))
                for each in faults:
                    print(each.encode(errors="backslashreplace").decode(), flush=True)
                wrong += faults[:1]
            fault = _history(mutants)
            if fault:
                wrong.append(f"result {kind}, all files, history: {fault[:300]}")
                print(wrong[-1].encode(errors="backslashreplace").decode(), flush=True)
    return counts, wrong
