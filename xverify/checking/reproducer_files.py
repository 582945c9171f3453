"""The files of a reproducer: its script, the text of a bug report, and the folder that the user named."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from .. import host
from ..errors import NotWritten, UsageError, shown
from ..messages.pieces import PieceCut
from ..outputs import MARK
from ..verdict.limits import DRIFT_R
from .candidate import Evaluated
from .pieces import Wrong
from .subject import Opened

SCRIPT, REPORT = "reproduce.py", "report.md"
ONE = {"model.onnx": "inputs.npz"}  # model of a reproducer -> its inputs
TWO = {"reference.onnx": "reference-inputs.npz", **ONE}  # of a file and its reference
FILES, COMPARED = (frozenset({*each, *each.values(), "expected.npz", SCRIPT, REPORT}) for each in (ONE, TWO))
MANY = 8  # operators that a title names

TEXT = '''\
"""Computes {what} with {runtime}, and compares the result with the exact one. It ends with 1 when a value is wrong."""

import sys
from pathlib import Path

import numpy as np
import {runtime}

folder, wrong = Path(__file__).resolve().parent, 0
expected = np.load(folder / "expected.npz")
names = [key[len("exact/") :] for key in expected if key.startswith("exact/")]
np.seterr(all="ignore")
for file, given in {files}:
    path, inputs = str(folder / file), dict(np.load(folder / given))
    {compute}
    for name, found in zip(names, outputs):
        exact, rounded, limit = (expected[kind + name] for kind in ("exact/", "rounded/", "limit/"))
        if (found.shape, found.dtype) != (exact.shape, rounded.dtype):
            sys.exit(f"{{file}}: {{name}}: {{found.dtype}} {{found.shape}}, expected {{rounded.dtype}} {{exact.shape}}: WRONG")
        error = np.where((found == rounded) | (np.isnan(found) & np.isnan(exact)), 0.0, np.abs(found - exact))
        beyond = np.count_nonzero(~(error <= limit))
        score = np.nan_to_num(error, nan=np.inf) - limit if beyond else error / (limit + 1e-300)
        at = np.unravel_index(np.argmax(score), error.shape)
        print(f"{{file}}: {{name}}{{[int(each) for each in at]}}: {{float(found[at]):.9g}}, exactly {{exact[at]:.9g}}:",
              f"error {{error[at]:.3g}}, limit {{limit[at]:.3g}};",
              f"{{'WRONG' if beyond else 'right'}}, {{beyond}} of {{error.size}} values are beyond their limits")
        wrong += beyond
sys.exit(int(wrong > 0))
'''
# Runtime -> the lines that compute the outputs, and mode of the format -> how it is said there.
COMPUTE = {
    "onnxruntime": (
        "options = onnxruntime.SessionOptions()\n"
        "options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.{mode}\n"
        "options.intra_op_num_threads = {threads}\n"
        'session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])\n'
        "outputs = session.run(names, inputs)",
        {"all": "ORT_ENABLE_ALL", "none": "ORT_DISABLE_ALL"},
    ),
    "openvino": (
        'settings = {{"INFERENCE_PRECISION_HINT": "{mode}", "INFERENCE_NUM_THREADS": {threads}}}\n'
        'results = openvino.Core().compile_model(path, "CPU", settings)(inputs)\n'
        "outputs = [results[name] for name in names]",
        {"float32": "f32"},
    ),
}
HOW = {
    "all": "with all graph optimisations, which are the default", "none": "without graph optimisations",
    "float32": "in float32",
}  # fmt: skip


RUN_TEXT = """\
## What is returned

```
{printed}
```

## How to run it

```
pip install {runtime}=={release} numpy
python {script}
```

The script ends with exit code 1 while a value is wrong, and with 0 when all are right."""
REPORT_TEXT = (
    """\
# {runtime} {version}: wrong values of {kinds} on the CPU

{runtime} returns values that are further from the exact ones than rounding explains, {how}.

The nodes, cut out of {file} with the values that they are given there:

{nodes}

{more}"""
    + RUN_TEXT
    + """

## Versions

| | |
|---|---|
{versions}

## Files

* `model.onnx`: the graph. `inputs.npz`: its inputs by name.
* `expected.npz`: for each output the exact values, computed in float64 from these inputs (`exact/NAME`), the same rounded to its
  type (`rounded/NAME`), and how far a value may be away (`limit/NAME`): {limit:g} times the rms of what rounding changes, as
  evaluations with random rounding show it; half a step and such a rounding where the result is quantised.

{mark}
"""
)
PAIR_TEXT = (
    """\
# {own} of {file} computes something else than {reference} of {against}

It is the first node of the file whose value its reference does not have. {runtime} {version} computes both from the same values:

* `{reference}` of the reference `{against}`, in `reference.onnx`
* `{own}` of the file `{file}`, in `model.onnx`

"""
    + RUN_TEXT
    + """ `expected.npz` holds what the reference
says: exactly, in float64 (`exact/NAME`), rounded to its type (`rounded/NAME`), and how far a value may be away (`limit/NAME`),
{limit:g} times the rms of what rounding changes. The inputs of both are the values of the reference.

{mark}
"""
)
TOGETHER = "They fail together: without any one of them, the others are right."


def write_script(folder: Path, runtime: str, mode: str, threads: int, files: Mapping[str, str] = ONE) -> None:
    """Write the script that computes one or two pieces with their runtime and numpy alone. files: model -> its inputs."""
    compute, modes = COMPUTE[runtime]
    lines = compute.format(mode=modes[mode], threads=threads).replace("\n", "\n    ")
    what, pairs = " and ".join(files), list(files.items())
    (folder / SCRIPT).write_text(TEXT.format(runtime=runtime, what=what, files=pairs, compute=lines), encoding="utf-8")


def write_report(folder: Path, evaluated: Evaluated, found: Wrong, printed: str) -> str:
    """Write the text of a bug report. Returns what the reproducer holds, as a phrase. printed: the output of the script."""
    opened, cut, how = evaluated.opened, found.cut, HOW[found.mode]
    last, alone, machine = _plain(cut.nodes[-1]), len(cut.places) == 1, host.describe()
    versions = {
        opened.form.runtime: _version(opened),
        "how it computes": f"on the CPU, {how}",
        "operator sets": f"{cut.opset}; IR version {cut.ir_version}",
        "processor": machine["cpu"],
        "system": machine["system"],
        "Python": str(opened.environment.get("python", machine["python"])),
    }
    more = found.stopped or ("" if alone else TOGETHER)
    text = REPORT_TEXT.format(
        **_shared(evaluated, printed),
        kinds=", ".join(dict.fromkeys(_plain(name.partition(" ")[0]) for name in cut.nodes[-MANY:])),
        how=how,
        file=f"`{_plain(opened.path.name)}`",
        nodes="\n".join(f"* `{_plain(name)}`" for name in cut.nodes),
        more=f"{more}\n\n" if more else "",
        versions="\n".join(f"| {name} | {_plain(value)} |" for name, value in versions.items()),
    )
    (folder / REPORT).write_text(text, encoding="utf-8")
    return f"{last} fails by itself {how}" if alone else f"{len(cut.places)} nodes up to {last} fail together {how}"


def write_pair_report(folder: Path, evaluated: Evaluated, against: str, found: PieceCut, printed: str) -> str:
    """Write the text of a bug report on a conversion. Returns what the reproducer holds. against: the name of the reference."""
    own, reference = map(_plain, found.nodes)
    text = PAIR_TEXT.format(
        **_shared(evaluated, printed),
        own=own,
        reference=reference,
        file=_plain(evaluated.opened.path.name),
        against=_plain(against),
    )
    (folder / REPORT).write_text(text, encoding="utf-8")
    return f"{own} computes something else than {reference} of the reference"


def _shared(evaluated: Evaluated, printed: str) -> dict[str, object]:
    """What both reports tell. printed: the output of the script."""
    opened = evaluated.opened
    version = _version(opened)
    return {
        "runtime": opened.form.runtime,
        "version": version,
        "release": version.partition("-")[0],  # OpenVINO names its commit behind a dash
        "printed": _block(printed),
        "script": SCRIPT,
        "limit": DRIFT_R,
        "mark": MARK,
    }


def _version(opened: Opened) -> str:
    return str(opened.environment.get(opened.form.runtime, ""))


def _block(text: str) -> str:
    """A text of several lines within a block of code."""
    return "\n".join(shown(line).replace("```", "'''") for line in text.splitlines())


def _plain(text: str) -> str:
    """A text from a file in one line, without what Markdown obeys."""
    return re.sub(r"[`|<>\[\]*]", "?", shown(text))


# -- the folder of the user ----------------------------------------------------------------------------------------------


def check_folder(path: str | Path | None, force: bool) -> None:
    """Raise UsageError for a folder that is not empty, unless it is an earlier reproducer and ``force`` replaces it."""
    place = Path(path) if path is not None else None
    if place is None or not place.is_dir() or not any(place.iterdir()):
        return
    if not is_own(place):
        raise UsageError(f"--reproducer {path} exists, is not empty, and is no reproducer: name a new folder")
    if not force:
        raise UsageError(f"--reproducer {path} holds an earlier reproducer: --force replaces it")


def is_own(folder: Path) -> bool:
    """Whether a folder holds nothing but a reproducer, or several in a folder each."""
    entries = list(folder.iterdir())
    if any(each.is_symlink() for each in entries):
        return False
    if entries and all(each.is_dir() for each in entries):
        return all(_is_one(each) for each in entries)
    return _is_one(folder)


def _is_one(folder: Path) -> bool:
    names = {each.name for each in folder.iterdir()}
    report = folder / REPORT
    return (
        names in (FILES, COMPARED) and report.is_file() and report.read_text("utf-8", "replace").rstrip().endswith(MARK)
    )


def place(found: Sequence[tuple[str, Path]], target: Path) -> list[Path]:
    """Put reproducers where the user wants them: one into the folder itself, several into a folder each. Returns their folders.

    found: (label of the row, folder of the reproducer). An earlier reproducer is replaced. Raises NotWritten; nothing is left then.
    """
    real = Path(os.path.realpath(target))
    names = [""] if len(found) == 1 else _names([label for label, _ in found])
    made, is_new = None, not real.exists()
    try:
        made = Path(tempfile.mkdtemp(prefix=".xverify-", dir=real.parent))
        for name, (_, folder) in zip(names, found):
            shutil.copytree(folder, made / name, dirs_exist_ok=True)
            (made / name).chmod(0o777 & ~_umask())
        real.mkdir(exist_ok=True)
        if any(real.iterdir()):
            check_folder(target, force=True)  # something may have come there meanwhile
            for each in real.iterdir():
                shutil.rmtree(each) if each.is_dir() else each.unlink()
        for each in made.iterdir():
            os.replace(each, real / each.name)
    except OSError as error:
        if is_new:
            shutil.rmtree(real, ignore_errors=True)
        raise NotWritten(f"--reproducer {target} cannot be written: {error.strerror or error}") from None
    finally:
        if made is not None:
            shutil.rmtree(made, ignore_errors=True)
    return [target / name for name in names]


def _names(labels: Sequence[str]) -> list[str]:
    """A name of a folder for each label, no two of which are equal."""
    names: list[str] = []
    for label in labels:
        plain = re.sub(r"[^\w.-]+", "-", label)[:100].strip(".-") or "file"
        names.append(plain if plain not in names else f"{plain}-{len(names)}")
    return names


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
