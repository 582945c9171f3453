"""What a receipt holds.

    DIR/
      receipt.json      settings, versions, and the digest of every other file
      result.json       the result file of the run
      files/my_port/    the model folder, and the folder that its spec names as code
      ports/port/       the files that the subject port=FILE.py names and imports, for each such subject
      forward/          for each task: weights.npz, the canonical weights, and inputs.npz, the input cases (of training with labels)

receipt.json is written last. A folder without it is no receipt.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..results.records import Result
from ..workload.options import RunSettings

VERSION = 1  # of the form of a receipt
RECEIPT, RESULT, FILES, PORTS = "receipt.json", "result.json", "files", "ports"
WEIGHTS, INPUTS = "weights.npz", "inputs.npz"

Packages = Mapping[str, Mapping[str, str]]  # interpreter, "" for that of the command -> package -> version


@dataclass(frozen=True)
class KeptTask:
    """One task of a run. weights, inputs: its files; None where the run ended before they were made. subjects: of its rows."""

    subjects: tuple[str, ...]
    weights: Path | None
    inputs: Path | None


@dataclass(frozen=True)
class Kept:
    """A receipt that was read.

    path: its folder. model: the folder of the model in it.
    settings: what the user asked for, with the batch size and the threads of the run.
    packages: versions of installed packages. adapters: framework -> digest of the file of an adapter that is not xverify's own.
    left_out: files of the model folder that were too large to keep, and links that lead out of it.
    result: of the run. changed: a sentence about each file that is not as it was written.
    """

    path: Path
    model: Path
    settings: RunSettings
    tasks: Mapping[str, KeptTask]
    packages: Packages
    adapters: Mapping[str, str]
    left_out: tuple[str, ...]
    result: Result
    changed: tuple[str, ...] = ()
