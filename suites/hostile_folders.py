"""Model folders made to harm: each must end as one clear line, or as a row, and leave no temporary file."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HANG = 150.0  # seconds; a spec may take usercode.LIMIT
HEAD = "from xverify import ModelSpec, TensorSpec\n"
X, Y = 'TensorSpec(("N", 8))', 'TensorSpec(("N", 3))'
SPEC = HEAD + f'SPEC = ModelSpec(batch=4, inputs={{"x": {X}}}, outputs={{"y": {Y}}})\n'
MODEL = """import numpy as np

class Net:
    def __init__(self):
        self.weights = {"fc.weight": np.zeros((3, 8), np.float32)}

    def __call__(self, x):
        return x @ self.weights["fc.weight"].T

def build():
    return Net()
"""
RUNS, REFUSED, FAILED = (0,), (2,), (3,)  # exit codes


@dataclass(frozen=True)
class Folder:
    """A model folder. files: path -> content. codes: the exit codes that are right. says: a text that the answer holds.

    prepare: what else is done with the folder.
    """

    name: str
    files: dict[str, str | bytes]
    codes: tuple[int, ...]
    says: str = ""
    prepare: Callable[[Path], object] | None = None


def _spec(name: str, text: str | bytes, says: str, codes: tuple[int, ...] = REFUSED) -> Folder:
    return Folder(f"spec: {name}", {"spec.py": text, "numpy.py": MODEL}, codes, says)


def _model(name: str, text: str | bytes, says: str, codes: tuple[int, ...] = FAILED, **more: str) -> Folder:
    return Folder(f"model: {name}", {"spec.py": SPEC, "numpy.py": text, **more}, codes, says)


def _names(name: str, text: str | bytes, says: str, codes: tuple[int, ...] = REFUSED) -> Folder:
    return Folder(f"names.toml: {name}", {"spec.py": SPEC, "numpy.py": MODEL, "names.toml": text}, codes, says)


def folders() -> list[Folder]:
    """All folders."""
    return [*_fields(), *_ends(), *_texts(), *_tables(), *_imports(), *_models(), *_places()]


def _fields() -> Iterator[Folder]:
    for batch in ("0", "-1", "2.5", "None", "True", '"4"', "10**30", "10**5000", "[4]"):
        yield _spec(f"batch {batch}", SPEC.replace("batch=4", f"batch={batch}"), "batch is")
    for name, tensor, says in (
        ("no dtype", 'TensorSpec(("N", 8), "float23")', "did you mean 'float32'"),
        ("dtype None", 'TensorSpec(("N", 8), None)', "write its name"),
        ("text range", 'TensorSpec(("N", 8), low="0", high="1")', "finite number"),
        ("NaN range", 'TensorSpec(("N", 8), low=float("nan"), high=1)', "finite number"),
        ("infinite range", 'TensorSpec(("N", 8), low=0, high=float("inf"))', "finite number"),
        ("range outside", 'TensorSpec(("N", 8), "uint8", low=-1, high=256)', "uint8 holds"),
        ("huge range", 'TensorSpec(("N", 8), low=0, high=10**400)', "larger than float32"),
        ("half a range", 'TensorSpec(("N", 8), low=0)', "both low and high"),
        ("text shape", 'TensorSpec("N8")', "tuple of sizes"),
        ("negative size", 'TensorSpec(("N", -8))', "positive integer"),
        ("true size", 'TensorSpec(("N", True))', "positive integer"),
        ("huge size", 'TensorSpec(("N", 2**70))', "positive integer"),
        ("layout", 'TensorSpec(("N", 8), layout=5)', "layout is 5"),
        ("complex", 'TensorSpec(("N", 8), "complex64")', "draws floats"),
        ("unknown argument", 'TensorSpec(("N", 8), lo=3)', "takes no 'lo'"),
        ("no tensor", "(4, 8)", "write TensorSpec"),
    ):
        yield _spec(name, SPEC.replace(X, tensor), says)
    for name, old, new, says in (
        ("inputs a list", f'inputs={{"x": {X}}}', "inputs=[1]", "write a mapping"),
        ("no inputs", f'inputs={{"x": {X}}}', "inputs={}", "is empty"),
        ("a number as name", '"x":', "3:", "has the name 3"),
        ("an empty name", '"x":', '"":', "has the name ''"),
        ("a name that clears the screen", '"x":', '"\\x1b[2J":', "can be printed"),
        ("outputs None", f'outputs={{"y": {Y}}}', "outputs=None", "outputs is None"),
        ("options a list", "batch=4", "batch=4, options=[1]", "options is"),
        ("options of numbers", "batch=4", "batch=4, options={1: 2}", "the key 1"),
        ("a function as option", "batch=4", "batch=4, options={'f': print}", "options are"),
        ("NaN as option", "batch=4", "batch=4, options={'f': float('nan')}", "finite"),
        ("task a number", "batch=4", "batch=4, task=4", "task is 4"),
        ("code elsewhere", "batch=4", "batch=4, code='../nowhere'", "is no folder"),
        ("code with a zero", "batch=4", "batch=4, code='a\\0b'", "the character 0"),
        ("an unknown field", "batch=4", "bach=4", "did you mean 'batch'"),
    ):
        yield _spec(name, SPEC.replace(old, new), says)


def _ends() -> Iterator[Folder]:
    for name, text, says in (
        ("sys.exit(0)", "import sys\nsys.exit(0)", "SystemExit: 0"),
        ("sys.exit(text)", "import sys\nsys.exit('\\x1b[2Jgone')", "SystemExit"),
        ("exit()", "exit()", "SystemExit"),
        ("os._exit(0)", "import os\nos._exit(0)", "SystemExit: 0"),
        ("KeyboardInterrupt", "raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("GeneratorExit", "raise GeneratorExit", "GeneratorExit"),
        ("BaseException", "class E(BaseException): pass\nraise E('own')", "E: own"),
        ("recursion", "def f(): return f()\nf()", "RecursionError"),
        ("a loop", "while True: pass", "it has not ended after"),
        ("memory", "x = 'x' * 10**15", "MemoryError"),
        ("an error that cannot be shown", "class E(Exception):\n def __str__(self): return 1/0\nraise E", "E"),
        ("an error of many lines", "raise ValueError('a\\nb\\nc\\x1b[31m')", "ValueError: a"),
        ("an error like markup", "raise ValueError('[red]a[/] [/]')", "[red]a[/] [/]"),
    ):
        yield _spec(name, text, says)


def _texts() -> Iterator[Folder]:
    for name, text, says in (
        ("not UTF-8", b"x = '\xff\xfe'", "spec.py"),
        ("zeros", b"\0" * 50, "spec.py"),
        ("empty", "", "found NoneType"),
        ("a syntax error", "SPEC = (", "SyntaxError"),
        ("deep brackets", "x = " + "(" * 5000, "spec.py"),
        ("a long sum", "x = " + "+".join(["1"] * 20_000), ""),
        ("a number", "SPEC = 3", "found int"),
        ("an import of nothing", "import no_such_module", "ModuleNotFoundError"),
        ("a star of nothing", "from .nothing import *", "ModuleNotFoundError"),
    ):
        yield _spec(name, text, says)


def _tables() -> Iterator[Folder]:
    yield _names("not UTF-8", b'[numpy]\n"fc" = "\xff"', "is not UTF-8")
    yield _names("no TOML", "[numpy\n", "names.toml")
    yield _names("no table", '"fc" = "a"', "stands in no table")
    yield _names("a number", '[numpy]\n"fc" = 3', "takes lines of the form")
    yield _names("two as one", '[numpy]\n"fc" = "a"\n"fd" = "a"', "both said to be 'a'")
    yield _names("deep", "[numpy]\na = " + "[" * 5000, "names.toml")
    yield _names("huge", "[numpy]\na = 1" + "0" * 5000, "names.toml")
    yield _names("folded a text", '[numpy]\nfolded = "fc"', "takes a list")
    yield _names("a name of nothing", '[numpy]\n"no" = "nobody"', "nobody", REFUSED + FAILED)


def _imports() -> Iterator[Folder]:
    helped = "from helper import Net\ndef build():\n    return Net()\n"
    yield _model("helper beside", helped, "", RUNS, **{"helper.py": MODEL})
    yield _model(
        "helper of a helper", helped, "", RUNS, **{"helper.py": "import deep\nNet = deep.Net", "deep.py": MODEL}
    )
    yield _model("relative helper", "from .helper import Net, build", "", RUNS, **{"helper.py": MODEL})
    yield _model("helpers in a circle", "import a\n" + MODEL, "", RUNS, **{"a.py": "import b", "b.py": "import a"})
    yield _model("helper that exits", helped, "SystemExit", **{"helper.py": "import sys\nsys.exit(0)"})
    yield _model("helper missing", helped, "No module named 'helper'")
    for name in ("json", "sys", "os", "typing", "numpy_", "random", "io", "re", "dataclasses", "site", "sitecustomize"):
        yield _model(f"a file {name}.py", MODEL, "", RUNS, **{f"{name}.py": "raise ValueError('hides the library')"})
    yield Folder("import: torch.py of the folder", {"spec.py": SPEC, "numpy.py": MODEL, "jittor.py": "1/0"}, RUNS)


def _models() -> Iterator[Folder]:
    for name, text, says in (
        ("sys.exit(0)", "import sys\nsys.exit(0)", "SystemExit"),
        ("exit while it builds", "def build():\n    raise SystemExit(0)", "SystemExit"),
        (
            "exit while it computes",
            MODEL.replace("return x @", "raise SystemExit(0)\n        return x @"),
            "SystemExit",
        ),
        ("KeyboardInterrupt", "raise KeyboardInterrupt", "KeyboardInterrupt"),
        ("GeneratorExit", "def build():\n    raise GeneratorExit", "GeneratorExit"),
        ("os._exit(0)", "import os\nos._exit(0)", "exited with status 0"),
        ("os._exit(1)", "def build():\n    import os\n    os._exit(1)", "exited with status 1"),
        ("recursion", "def build():\n    return build()", "RecursionError"),
        ("not UTF-8", b"x = '\xff'", "SyntaxError"),
        ("empty", "", "build"),
        ("None", "def build():\n    return None", ""),
        ("an error like markup", "def build():\n    raise ValueError('[/] [red]x \\x1b[2J')", "[/] [red]x"),
        ("an error of many lines", "def build():\n    raise ValueError('a\\n' * 1000)", "ValueError: a"),
        ("a signal", "import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)", "SIGSEGV"),
        ("output that is no array", MODEL.replace('x @ self.weights["fc.weight"].T', "print"), ""),
        ("an argument that is missing", MODEL.replace("def build():", "def build(size):"), "size"),
    ):
        yield _model(name, text, says)


def _places() -> Iterator[Folder]:
    whole, no_spec = {"spec.py": SPEC, "numpy.py": MODEL}, {"numpy.py": MODEL}
    for name, kind, says, made, put in (
        ("spec.py", "a link in a circle", "Too many levels", no_spec, lambda file: file.symlink_to(file.name)),
        (
            "numpy.py",
            "a link in a circle",
            "Too many levels",
            {"spec.py": SPEC},
            lambda file: file.symlink_to(file.name),
        ),
        ("spec.py", "a folder", "it is a folder", no_spec, Path.mkdir),
        ("spec.py", "a pipe", "it is a pipe", no_spec, os.mkfifo),
        ("names.toml", "a folder", "it is a folder", whole, Path.mkdir),
    ):
        yield Folder(
            f"place: {name} {kind}", made, REFUSED, f"{name}: {says}", lambda f, put=put, name=name: put(f / name)
        )  # type: ignore[misc]
    yield Folder(
        "place: weights of noise", {**whole, "weights.safetensors": b"noise" * 50}, REFUSED, "weights.safetensors"
    )
    yield Folder("place: empty weights", {**whole, "weights.safetensors": b""}, REFUSED, "weights.safetensors")
    yield Folder("place: a dangling link beside", whole, RUNS, "", lambda f: (f / "old.py").symlink_to(f / "gone"))


def fault(folder: Folder, space: Path) -> str:
    """What is wrong with the answer to a folder; "" when it is right. space: an empty folder."""
    port, temporary = space / "port", space / "temporary"
    for place in (port, temporary):
        place.mkdir()
    for name, content in folder.files.items():
        (port / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    if folder.prepare is not None:
        folder.prepare(port)
    run = ["run", str(port), "--subjects", "numpy", "--rerun", "2", "--warmup", "1", "--cases", "1", "--timeout", "60"]
    try:
        done = subprocess.run(
            [sys.executable, "-m", "xverify", *run], capture_output=True, timeout=HANG, check=False, cwd=space,
            env={**os.environ, "TMPDIR": str(temporary)},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return f"no answer within {HANG:g} s"
    out, err = done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")
    said = [line for line in err.splitlines() if line.startswith("xverify")]
    left = [each.name for each in temporary.iterdir()]
    strange = re.search(r"[^\x20-\x7e\n\u00a0-\u2027\u2030-\uffff]", out + err)
    if done.returncode not in folder.codes:
        return f"exit code {done.returncode}, expected {folder.codes}: {err[-300:]}"
    if "Traceback" in out + err or re.search(r"xverify \w*: unexpected", err):
        return f"a traceback: {err[-300:]}"
    if done.returncode == 2 and (len(said) != 1 or err.splitlines()[-1] != said[0]):
        return f"its message is not one line: {err[-300:]!r}"
    if folder.says not in out + err:
        return f"it does not say {folder.says!r}: {(out + err)[-300:]!r}"
    if strange:
        return f"it prints the character {strange[0]!r}"
    return f"it leaves {left}" if left else ""


def run(files: int, jobs: int) -> tuple[dict[str, Counter[str]], list[str]]:
    """Run so many of the folders, taken evenly. Returns the counts of each kind, and what was wrong."""
    chosen = folders()
    step = max(1, len(chosen) // files) if files < len(chosen) else 1
    counts: dict[str, Counter[str]] = {}
    wrong: list[str] = []

    def judge(folder: Folder) -> tuple[Folder, str, float]:
        begun = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="folders-") as space:
            return folder, fault(folder, Path(space)), time.monotonic() - begun

    with ThreadPoolExecutor(jobs) as pool:
        for folder, why, seconds in pool.map(judge, chosen[::step]):
            kind = folder.name.partition(":")[0]
            counts.setdefault(kind, Counter()).update(("tried", "WRONG" if why else "right"))
            print(
                f"{'WRONG' if why else 'right'} {seconds:5.1f} s  {folder.name}{': ' if why else ''}{why}", flush=True
            )
            wrong += [f"{folder.name}: {why}"] if why else []
    return counts, wrong
