"""HDF5 files with a whole model, as Keras 2 and Keras 3 write them: ``.h5``."""

from __future__ import annotations

import mmap
import re
from pathlib import Path

from xverify import reading
from xverify.errors import Failed
from xverify.formats._keras_file import KerasFile, check_hdf5

MAGIC = b"\x89HDF\r\n\x1a\n"
_CLASSES = re.compile(rb'"class_name"\s*:\s*"(Lambda|__lambda__|TorchModuleWrapper|TFSMLayer|JaxLayer|FlaxLayer)"')


class Adapter(KerasFile):
    name = "h5"
    title = "Keras HDF5 file"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        if not path.is_file():
            return False
        with reading.opened(path) as file:
            return file.read(8) == MAGIC

    @classmethod
    def describe_risk(cls, path: Path) -> str:
        # The configuration is a text in the file. The worker, which reads it with HDF5, decides: it may be stored in parts.
        with reading.opened(path) as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
            match = _CLASSES.search(data)
            return f"its configuration has a {match[1].decode()} layer, which can hold code" if match else ""

    def look_inside(self, path: Path, trust: bool) -> None:
        import h5py

        with h5py.File(path, "r") as file:
            if "model_config" not in file.attrs:
                raise Failed(
                    "it holds weights or other arrays, and no model; save the whole model with model.save(...)"
                )
            check_hdf5(file, trust)
