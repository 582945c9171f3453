"""What files are compared with: another file, or recorded tensors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ..errors import UsageError
from ..framework.modelfile import Tensor
from ..weights.canonical import Array
from ..workload.keys import case_key
from .arrays import load

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
    """Whether a path holds recorded tensors: a .npz file, or a folder with ``output_0.pb`` in it or in its ``test_data_set_0``."""
    return path.suffix == ".npz" or bool(_data_sets(path))


def _data_sets(path: Path) -> list[Path]:
    if not path.is_dir():
        return []
    folders = [path, *sorted(path.glob("test_data_set_*"))]
    return [folder for folder in folders if (folder / "output_0.pb").is_file()]


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
        if kind in found and rest:
            found[kind][case_key(0, rest)] = array
            continue
        kinds = [kind for kind in found if name in names[kind]]
        if len(kinds) != 1:
            raise UsageError(
                f"--against {path}: it cannot be told whether {name!r} is an input or an output; call the arrays input/NAME and "
                "output/NAME"
            )
        found[kinds[0]][case_key(0, name)] = array
    return _recorded(path, found[INPUT], found[OUTPUT], 1)


def _read_folders(path: Path, inputs: Sequence[Tensor], outputs: Sequence[Tensor]) -> Recorded:
    folders = _data_sets(path)
    found: dict[str, dict[str, Array]] = {INPUT: {}, OUTPUT: {}}
    for case, folder in enumerate(folders):
        for kind, tensors in ((INPUT, inputs), (OUTPUT, outputs)):
            for file in sorted(folder.glob(f"{kind}_*.pb"), key=_number):
                index = _number(file)
                name, array = _tensor(file)
                if index >= len(tensors):
                    raise UsageError(f"--against {file}: the model file has {len(tensors)} {kind}s")
                known = name in {tensor.name for tensor in tensors}
                found[kind][case_key(case, name if known else tensors[index].name)] = array
    return _recorded(path, found[INPUT], found[OUTPUT], len(folders))


def _number(file: Path) -> int:
    digits = re.search(r"(\d+)\.pb$", file.name)
    return int(digits[1]) if digits else 0


def _tensor(file: Path) -> tuple[str, Array]:
    try:
        import onnx
        from onnx import numpy_helper
    except ModuleNotFoundError:
        raise UsageError(f"--against {file}: reading ONNX test data needs the package onnx: pip install onnx") from None
    try:
        proto = onnx.load_tensor(str(file))
        if proto.data_location == onnx.TensorProto.EXTERNAL:
            raise UsageError(f"--against {file}: its values lie in another file, and such a tensor is never read")
        if proto.data_type == onnx.TensorProto.STRING:
            raise UsageError(f"--against {file}: it holds strings, and xverify compares numbers only")
        return proto.name, _plain(np.asarray(numpy_helper.to_array(proto)))
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"--against {file}: this is no tensor: {type(error).__name__}") from None


def _plain(array: Array) -> Array:
    """An array of a dtype that numpy has: bfloat16 and narrower floats as float32, numbers of 4 bits as int8."""
    if array.dtype.kind != "V":
        return array
    return array.astype(np.float32 if "float" in array.dtype.name else np.int8)


def _recorded(path: Path, inputs: Mapping[str, Array], outputs: Mapping[str, Array], cases: int) -> Recorded:
    if not outputs:
        raise UsageError(f"--against {path}: there is no recorded output")
    return Recorded(str(path), inputs, outputs, cases)
