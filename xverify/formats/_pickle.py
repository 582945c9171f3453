"""Tells what a pickle would call, without opening it."""

from __future__ import annotations

import pickletools
import zipfile
from typing import IO

from xverify.formats import _zip

# What a pickle of tensors and plain containers refers to. Everything else may be code.
_PLAIN = {
    "collections OrderedDict",
    "torch Size",
    "torch device",
    "torch.nn.parameter Parameter",
    "torch._utils _rebuild_tensor",
    "torch._utils _rebuild_tensor_v2",
    "torch._utils _rebuild_tensor_v3",
    "torch._utils _rebuild_parameter",
    "torch.serialization _get_layout",
}
_NUMBERS = "float16 float32 float64 bfloat16 int8 int16 int32 int64 uint8 bool complex64 complex128"
_KINDS = "Float Double Half BFloat16 Long Int Short Char Byte Bool ComplexFloat ComplexDouble"
_PLAIN |= {f"torch {name}" for name in _NUMBERS.split(" ")} | {f"torch {name}Storage" for name in _KINDS.split(" ")}


def code_in_pickle(file: IO[bytes]) -> str:
    """The first thing in a pickle that is more than tensors and plain values; "" when there is none."""
    try:
        for operation, argument, _ in pickletools.genops(file):
            if operation.name in ("GLOBAL", "INST"):
                if argument not in _PLAIN:
                    return str(argument).replace(" ", ".")
            elif operation.name == "STACK_GLOBAL" or operation.name.startswith("EXT"):
                return f"the operation {operation.name}"
        if file.read(1):
            return "a second pickle"  # which only the unpickler that reads the first could find
    except Exception as error:  # of a hostile pickle, any
        return f"an unreadable pickle ({type(error).__name__})"
    return ""


def code_in_archive(source: IO[bytes]) -> str:
    """The same for a file that ``torch.save`` wrote, which is an archive with pickles in it, or one pickle."""
    if source.read(2) != b"PK":
        source.seek(0)
        return code_in_pickle(source)
    source.seek(0)
    try:
        with zipfile.ZipFile(source) as archive:
            for info in archive.infolist():
                if info.filename.lower().endswith(".pkl"):
                    with archive.open(info) as file:
                        found = code_in_pickle(file)
                    if found:
                        return found
    except _zip.ERRORS as error:
        return f"an unreadable archive ({type(error).__name__})"
    return ""
