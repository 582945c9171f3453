"""HDF5 files of Keras: a target for ``zoo_files.py`` alone."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

_SPEC: Any = importlib.util.spec_from_file_location("suites_keras", Path(__file__).with_name("keras.py"))
_KERAS: Any = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_KERAS)


class Adapter(_KERAS.Adapter):  # type: ignore[misc]
    name = "h5"
    title = "Keras HDF5 file"
    suffixes = (".h5",)
