"""Keras 3's own files, ``.keras``: a zip archive of a configuration and weights."""

from __future__ import annotations

import zipfile
from pathlib import Path

from xverify.errors import UsageError
from xverify.formats import _zip
from xverify.formats._keras_file import KerasFile, check_hdf5
from xverify.formats._tensorflow import code_in_config

CONFIG, WEIGHTS, PICKLES = "config.json", "model.weights.h5", "model.weights.npz"


class Adapter(KerasFile):
    name = "keras"
    title = "Keras file"

    @classmethod
    def recognises(cls, path: Path) -> bool:
        names = {info.filename for info in _zip.members(path)}
        return {CONFIG, "metadata.json"} <= names

    @classmethod
    def describe_risk(cls, path: Path) -> str:
        if _zip.doubt(path):
            return _zip.doubt(path)
        try:
            with zipfile.ZipFile(path) as archive:
                config = _zip.read_json(archive, archive.getinfo(CONFIG))
                if PICKLES in archive.namelist():
                    return f"its weights are {PICKLES}, in which some versions of Keras open pickles"
            # The model is opened without its loss and optimizer, which may have code of their own.
            return code_in_config({**config, "compile_config": None} if isinstance(config, dict) else config)
        except (*_zip.ERRORS, RecursionError):
            return ""  # ``check`` says what is wrong

    @classmethod
    def check(cls, path: Path) -> None:
        try:
            with zipfile.ZipFile(path) as archive:
                _zip.read_json(archive, archive.getinfo(CONFIG))
        except (*_zip.ERRORS, RecursionError) as error:
            raise UsageError(f"{path.name}: this Keras file is damaged: {CONFIG} cannot be read: {error}") from None

    def look_inside(self, path: Path, trust: bool) -> None:
        import h5py

        with zipfile.ZipFile(path) as archive:
            if WEIGHTS in archive.namelist():
                with archive.open(WEIGHTS) as member, h5py.File(member, "r") as file:
                    check_hdf5(file, trust)
