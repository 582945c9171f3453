"""What files are compared with: another file, or recorded tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import reading
from ..errors import UsageError
from ..framework.modelfile import Tensor
from ..weights.canonical import Array
from ..workload.keys import case_key
from .arrays import check_fits, load

INPUT, OUTPUT = "input", "output"


@dataclass(frozen=True)
class Recorded:
    """Recorded inputs and outputs.

    inputs, outputs: "case/name" -> array. cases: number of cases.
    """

    label: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    cases: int

    def tensors(self, what: str) -> tuple[Tensor, ...]:
        """The tensors of case 0, as a signature."""
        arrays = self.inputs if what == INPUT else self.outputs
        return tuple(
            Tensor(name, array.shape, array.dtype.name)
            for key, array in arrays.items()
            for case, _, name in [key.partition("/")]
            if case == "0"
        )


def is_recorded(path: Path) -> bool:
    """Whether a path holds recorded tensors: a .npz file, or a folder with ``output_0.pb`` or folders ``test_data_set_0``, ..."""
    return path.suffix == ".npz" or bool(_data_sets(path))


def _data_sets(path: Path) -> list[Path]:
    """The folders that hold recorded tensors, in the order of their numbers; [] for any other path."""
    if not path.is_dir():
        return []
    sets = [each for each in path.glob("test_data_set_*") if each.is_dir()]
    own = [path] if any(path.glob("input_*.pb")) or any(path.glob("output_*.pb")) else []
    return [*own, *sorted(sets, key=lambda each: (_number(each), each.name))]


def check(path: Path) -> None:
    """Raise UsageError when a part of recorded tensors is no file, such as a pipe, before any process is started."""
    sets = _data_sets(path)
    parts = [each for folder in sets for kind in (INPUT, OUTPUT) for each in folder.glob(f"{kind}_*.pb")]
    # Beside the folders may be files, such as the archives that they come from.
    parts += [each for each in path.glob("test_data_set_*") if not each.is_dir()] if sets else [path]
    for each in sorted(parts):
        wrong = reading.problem(each)
        if wrong:
            raise UsageError(f"--against {each}: {wrong}")


def read(path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Recorded:
    """Read recorded tensors. Raises UsageError.

    path: a .npz file with arrays called ``input/NAME`` and ``output/NAME``, or NAME alone where the file under test has such an
        input or output; or a folder of ONNX test data, whose tensors have the order of the file.
    inputs, outputs: the signature of the file under test.
    """
    return _read_npz(path, inputs, outputs) if path.suffix == ".npz" else _read_folders(path, inputs, outputs)


def _read_npz(path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Recorded:
    arrays = load(path, "--against")
    found: dict[str, dict[str, Array]] = {INPUT: {}, OUTPUT: {}}
    names = {INPUT: {each.name for each in inputs}, OUTPUT: {each.name for each in outputs}}
    for name, array in arrays.items():
        kind, _, rest = name.partition("/")
        if not (kind in found and rest):
            kinds = [kind for kind in found if name in names[kind]]
            if len(kinds) != 1:
                raise UsageError(
                    f"--against {path}: it cannot be told whether {name!r} is an input or an output; call the arrays input/NAME "
                    "and output/NAME"
                )
            kind, rest = kinds[0], name
        _add(found[kind], case_key(0, rest), array, f"{path}: both {kind}/{rest} and {rest}")
    return _recorded(path, found[INPUT], found[OUTPUT], 1, inputs)


def _add(found: dict[str, Array], key: str, array: Array, both: str) -> None:
    """Add an array. Raises UsageError for a second one of the same tensor. both: the two, for the message."""
    if key in found:
        raise UsageError(f"--against {both} are recorded for one tensor; keep the right one, and delete the other")
    found[key] = array


def _read_folders(path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Recorded:
    folders = _data_sets(path)
    _check_numbers([each for each in folders if each != path], path, "test_data_set_", "")
    found: dict[str, dict[str, Array]] = {INPUT: {}, OUTPUT: {}}
    for case, folder in enumerate(folders):
        for kind, tensors in ((INPUT, inputs), (OUTPUT, outputs)):
            files = sorted(folder.glob(f"{kind}_*.pb"), key=lambda file: (_number(file), file.name))
            _check_numbers(files, folder, f"{kind}_", ".pb")
            if not files and (kind == OUTPUT or tensors):
                raise UsageError(
                    f"--against {folder}: it holds no {kind}_0.pb, and recorded data is compared whole or not at all: add the "
                    f"{kind}s, or delete the folder"
                )
            seen: dict[str, Path] = {}
            for index, file in enumerate(files):
                name, array = _tensor(file)
                if index >= len(tensors):
                    raise UsageError(f"--against {file}: the model file has {len(tensors)} {kind}s")
                known = name in {tensor.name for tensor in tensors}
                name = name if known else tensors[index].name
                before = seen.setdefault(name, file)
                _add(found[kind], case_key(case, name), array, f"{folder}: both {before.name} and {file.name} ({name})")
    return _recorded(path, found[INPUT], found[OUTPUT], len(folders), inputs)


def _check_numbers(found: Sequence[Path], folder: Path, begin: str, end: str) -> None:
    """Raise UsageError unless these are called ``begin`` 0 ``end``, 1, 2, ... in this order."""
    for index, each in enumerate(found):
        wanted = f"{begin}{index}{end}"
        if each.name != wanted:
            raise UsageError(
                f"--against {folder}: it holds {each.name} where {wanted} is expected; number them from 0 without a gap"
            )


def _number(file: Path) -> int:
    digits = re.search(r"(\d+)(\.pb)?$", file.name)
    return int(digits[1]) if digits else 0


def _tensor(file: Path) -> tuple[str, Array]:
    try:
        import onnx
        from onnx import numpy_helper
    except ModuleNotFoundError:
        raise UsageError(f"--against {file}: reading ONNX test data needs the package onnx: pip install onnx") from None
    try:
        with reading.opened(file) as opened:
            content = opened.read()
        if _is_sequence(content):
            raise UsageError(
                f"--against {file}: it holds a sequence, and xverify compares tensors only in recorded data"
            )
        proto = onnx.load_tensor_from_string(content)
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            raise UsageError(f"--against {file}: its values lie in another file, and such a tensor is never read")
        if proto.data_type == onnx.TensorProto.STRING:
            raise UsageError(f"--against {file}: it holds strings, and xverify compares numbers only")
        return proto.name, _plain(np.asarray(numpy_helper.to_array(proto)))
    except UsageError:
        raise
    except OSError as error:
        raise UsageError(f"--against {file}: {error.strerror or error}") from None
    except Exception as error:
        raise UsageError(f"--against {file}: this is no tensor: {type(error).__name__}") from None


def _is_sequence(content: bytes) -> bool:
    """Whether this is a sequence of tensors, whose fields have the numbers of others in a tensor."""
    from onnx import SequenceProto

    try:
        parsed = SequenceProto.FromString(content)
    except Exception:  # protobuf's own error, whose package has no types
        return False
    known = parsed.elem_type == SequenceProto.TENSOR and bool(parsed.name or parsed.tensor_values)
    return known and all(each.data_type for each in parsed.tensor_values)


def _plain(array: Array) -> Array:
    """An array of a dtype that numpy has: bfloat16 and narrower floats as float32, numbers of 4 bits as int8."""
    if array.dtype.kind != "V":
        return array
    return array.astype(np.float32 if "float" in array.dtype.name else np.int8)


def _recorded(
    path: Path, inputs: Mapping[str, Array], outputs: Mapping[str, Array], cases: int, needed: Sequence[Tensor]
) -> Recorded:
    """Recorded tensors that are whole: every case has the same ones, and all inputs of the file.

    needed: the inputs of the file under test. Their names may be others, so they are counted.
    """
    if not outputs:
        raise UsageError(f"--against {path}: there is no recorded output")
    by_case = [{key.partition("/")[2] for key in inputs if key.startswith(f"{case}/")} for case in range(cases)]
    results = [{key.partition("/")[2] for key in outputs if key.startswith(f"{case}/")} for case in range(cases)]
    for case, (mine, returned) in enumerate(zip(by_case, results)):
        where = f"{path}, case {case}" if cases > 1 else f"{path}"
        if len(mine) < len(needed):
            missing = [each.name for each in needed if each.name not in mine]
            raise UsageError(
                f"--against {where}: it holds {len(mine)} inputs ({', '.join(sorted(mine)) or 'none'}), and the model file "
                f"has {len(needed)}; record {', '.join(missing)}, too"
            )
        for what, own, first in ((INPUT, mine, by_case[0]), (OUTPUT, returned, results[0])):
            if own != first:
                differs = ", ".join(sorted(own ^ first))
                raise UsageError(
                    f"--against {where}: the {what}s {differs} are recorded in some cases only; record them in every case"
                )
    check_fits(inputs, needed, f"--against {path}")
    return Recorded(str(path), inputs, outputs, cases)
