"""onnx's own test data as cases on disk, and what ONNX Runtime alone says about each.

``python suites/onnx_data.py FOLDER ANSWERS`` runs the cases of a folder without xverify; ``onnx_suite.py`` starts it.
"""

from __future__ import annotations

import importlib
import json
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper

import xverify.host

RIGHT, WRONG, CANNOT, UNKNOWN = "right", "wrong", "cannot", "unknown"
RTOL, ATOL = 1e-3, 1e-7  # onnx's own, where a case has no others
HALF = 2.0**-9  # two units in the last place of float16, where onnx's tolerance is one of float32
NEAR = 1e-5  # error of an output by its size that rounding in float32 may come to
LONGEST = 60.0  # seconds that ONNX Runtime may take for one case


@dataclass(frozen=True)
class Case:
    """One case. folder: holds test_data_set_0, and so on. model: the file."""

    kind: str
    name: str
    model: Path
    folder: Path
    rtol: float = RTOL
    atol: float = ATOL


# -- cases on disk ----------------------------------------------------------------------------------------------------


def write(folder: Path, kinds: Sequence[str], operators: Sequence[str]) -> tuple[list[Case], list[str]]:
    """Write the cases that are made in memory. Returns all cases, and the names of those whose model is not in the package.

    kinds: "node", "simple", "pytorch-converted", "pytorch-operator", "light". operators: files of node cases; [] for all.
    """
    data = Path(onnx.__file__).parent / "backend" / "test" / "data"
    cases: list[Case] = []
    absent: list[str] = []
    if "node" in kinds:
        cases += list(_nodes(folder / "node", operators))
    for kind in kinds:
        if kind == "light":
            found, missing = _light(data, folder / "light")
            cases, absent = cases + found, absent + missing
        elif kind != "node":
            cases += [
                Case(kind, place.name, place / "model.onnx", place)
                for place in sorted((data / kind).iterdir())
                if (place / "model.onnx").is_file()
            ]
    return cases, absent


def _nodes(folder: Path, operators: Sequence[str]) -> Iterator[Case]:
    from onnx.backend.test.case import node

    if operators:
        for name in operators:
            importlib.import_module(f"{node.__name__}.{name}")
        found = node._NodeTestCases
    else:
        found = node.collect_testcases()
    for case in found:
        place = folder / case.name
        place.mkdir(parents=True)
        (place / "model.onnx").write_bytes(case.model.SerializeToString())
        for index, (inputs, outputs) in enumerate(case.data_sets):
            data_set = place / f"test_data_set_{index}"
            data_set.mkdir()
            for what, values, infos in (
                ("input", inputs, case.model.graph.input),
                ("output", outputs, case.model.graph.output),
            ):
                for number, (value, info) in enumerate(zip(values, infos)):
                    (data_set / f"{what}_{number}.pb").write_bytes(_serialised(value, info))
        yield Case("node", case.name, place / "model.onnx", place, case.rtol, case.atol)


def _serialised(value: Any, info: Any) -> bytes:
    """A value as test data has it."""
    if isinstance(value, onnx.TensorProto):
        return value.SerializeToString()
    if info.type.HasField("sequence_type"):
        return numpy_helper.from_list(value, info.name).SerializeToString()
    if info.type.HasField("optional_type"):
        return numpy_helper.from_optional(value, info.name).SerializeToString()
    return numpy_helper.from_array(np.asarray(value), info.name).SerializeToString()


def _light(data: Path, folder: Path) -> tuple[list[Case], list[str]]:
    """Whole networks. Their weights are made by nodes of the graph, and their inputs as onnx's runner makes them."""
    cases, absent = [], []
    for file in sorted((data / "real").glob("*/data.json")):
        said = json.loads(file.read_text())
        model = data / "light" / Path(said["url"]).name
        if "/light/" not in said["url"] or not model.is_file():
            absent.append(file.parent.name)
            continue
        place = folder / file.parent.name / "test_data_set_0"
        place.mkdir(parents=True)
        graph = onnx.load(model).graph
        weights = {tensor.name for tensor in graph.initializer}
        for number, info in enumerate(each for each in graph.input if each.name not in weights):
            shape = tuple(max(1, size.dim_value) for size in info.type.tensor_type.shape.dim)
            size = int(np.prod(shape))
            values = (np.arange(size).reshape(shape) / size).astype(np.float32)
            (place / f"input_{number}.pb").write_bytes(numpy_helper.from_array(values, info.name).SerializeToString())
        outputs = sorted(data.glob(f"light/{model.stem}_output_*.pb"))
        for number, output in enumerate(outputs):
            shutil.copy(output, place / f"output_{number}.pb")
        if outputs:
            cases.append(Case("light", file.parent.name, model, place.parent, said["rtol"], said["atol"]))
        else:
            absent.append(file.parent.name)
    return cases, absent


# -- ONNX Runtime alone -----------------------------------------------------------------------------------------------


def directly(cases: Sequence[Case], folder: Path) -> dict[str, tuple[str, str]]:
    """Kind/name -> (RIGHT, WRONG, CANNOT or UNKNOWN, why) by ONNX Runtime and onnx's own tolerance, in a process of its own.

    A case that ends that process is CANNOT, and another process goes on behind it.
    """
    listed, answers = folder / "cases.json", folder / "answers.jsonl"
    answers.touch()
    left = list(cases)
    while left:
        listed.write_text(
            json.dumps([[f"{c.kind}/{c.name}", str(c.model), str(c.folder), c.rtol, c.atol] for c in left])
        )
        process = subprocess.Popen(
            [sys.executable, __file__, str(listed), str(answers)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        why = _wait(process, answers)
        done = _answers(answers)
        left = [case for case in left if f"{case.kind}/{case.name}" not in done]
        if left and why:
            with answers.open("a") as file:
                file.write(json.dumps([f"{left[0].kind}/{left[0].name}", CANNOT, why]) + "\n")
            left = left[1:]
    return _answers(answers)


def _wait(process: subprocess.Popen[bytes], answers: Path) -> str:
    """Wait for the end of the process, as long as it answers cases. Returns why it ended early; "" when it did not."""
    size = -1
    while True:
        try:
            code = process.wait(LONGEST)
            return f"the process of ONNX Runtime ended with {code}" if code else ""
        except subprocess.TimeoutExpired:
            if answers.stat().st_size == size:
                xverify.host.kill_group(process)
                process.wait()
                return f"it takes more than {LONGEST:g} s"
            size = answers.stat().st_size


def _answers(file: Path) -> dict[str, tuple[str, str]]:
    return {name: (answer, why) for name, answer, why in map(json.loads, file.read_text().splitlines())}


def _answer(model: str, folder: Path, rtol: float, atol: float) -> tuple[str, str]:
    import onnxruntime
    from onnx.backend.test.runner import Runner

    try:
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        return CANNOT, _line(error)
    names = [value.name for value in session.get_inputs()]
    for data_set in sorted(folder.glob("test_data_set_*")):
        try:
            given, expected = _arrays(data_set, "input"), _arrays(data_set, "output")
        except Exception as error:
            return UNKNOWN, f"onnx's test data: {_line(error)}"
        if any(array.dtype.kind == "V" for array in (*given, *expected)):
            return UNKNOWN, "numpy has no such dtype"
        try:
            found = session.run(None, dict(zip(names, given)))
        except Exception as error:
            return CANNOT, _line(error)
        try:
            half = any(array.dtype == np.float16 for array in expected)
            Runner.assert_similar_outputs(
                expected, found, max(rtol, HALF) if half else rtol, max(atol, HALF) if half else atol
            )
        except (AssertionError, TypeError) as error:
            if not all(map(_near, expected, found)):
                return WRONG, _line(error)
    return RIGHT, ""


def _near(expected: Any, found: Any) -> bool:
    """Whether arrays differ by a small part of their size. onnx's tolerance allows no rounding where a value is near to zero."""
    if (
        expected.dtype.kind != "f"
        or expected.shape != found.shape
        or not np.array_equal(np.isfinite(expected), np.isfinite(found))
    ):
        return np.array_equal(expected, found)
    finite = np.isfinite(expected)
    right, own = expected[finite].astype(np.float64), found[finite].astype(np.float64)
    return bool(np.linalg.norm(own - right) <= NEAR * np.linalg.norm(right))


def _arrays(data_set: Path, what: str) -> list[Any]:
    files = sorted(data_set.glob(f"{what}_*.pb"), key=lambda file: int(file.stem.rpartition("_")[2]))
    return [numpy_helper.to_array(onnx.load_tensor(str(file))) for file in files]


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def main(listed: str, answers: str) -> None:
    """Answer the cases that a file lists, one line for each."""
    cases: Sequence[Any] = json.loads(Path(listed).read_text())
    with Path(answers).open("a") as file:
        for name, model, folder, rtol, atol in cases:
            file.write(json.dumps([name, *_answer(model, Path(folder), rtol, atol)]) + "\n")
            file.flush()


Answers = Mapping[str, tuple[str, str]]

if __name__ == "__main__":
    main(*sys.argv[1:])
