"""Reads of a result file what a history needs, and skips its samples, tensors and layers without making records of them."""

from __future__ import annotations

import datetime
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import asdict
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from .. import reading
from ..results.file import LARGEST, NEEDED
from ..results.records import EARLIER_NAMES, SCHEMA_VERSION, plain
from ..results.verdicts import Outcome, SpeedVerdict, Verdict
from ..workload.declaration import declared
from ..workload.optimizers import Optimizer
from ..workload.options import CommonSettings, TrainingSettings
from .records import EPOCH, MICROSECOND, Entry, Key, Measurement, time_of

# Settings that do not change what is measured, or that are columns of their own. The weights and the files of a model are
# conditions, which may be why something changed. Every other setting, also one that a later version adds, separates two series.
IGNORED = frozenset(
    (
        *("model", "subjects", "task", "batch", "threads", "device", "notes", "python", "timeout", "memory", "total_memory"),
        *("max_seconds", "trust", "max_weights", "no_timing", "effort", "strict", "weights", "folder_digest", "weights_digest"),
        "asked",
    )
)  # fmt: skip
PATHS = ("reference", "data")  # settings that may be paths, of which only the last name counts
LONGEST_VALUE = 200  # characters of a value of an environment
MOST_VALUES = 60  # of an environment
COMPARED = (SpeedVerdict.FASTER, SpeedVerdict.SAME, SpeedVerdict.SLOWER, SpeedVerdict.AMBIGUOUS)
LAST = 253_402_300_799_000_000  # microseconds from 1970 to the last second of the year 9999
Values = dict[str, Any]  # any JSON values: a later version, or a framework, may add some of another kind
RENAMED = {old: new for new, old in EARLIER_NAMES.items()}


class NotAResult(Exception):
    """The file is JSON, and no result of xverify."""


class Unreadable(Exception):
    """The file may be a result, and cannot be read. Its text says why."""


class _Check(msgspec.Struct, frozen=True):
    ratio: float | None = None


class _Training(msgspec.Struct, frozen=True):
    checks: list[_Check] | None = None
    rungs: list[_Check] | None = None  # the earlier name
    precision: str = "float32"


class _Error(msgspec.Struct, frozen=True):
    verdict: Verdict
    reason: str | None = None
    noise_ratio: float | None = None
    float32_ratio: float | None = None


class _Speed(msgspec.Struct, frozen=True):
    ratio: float | None = None
    ratio_ci: tuple[float | None, float | None] = (None, None)
    fps: float | None = None
    verdict: SpeedVerdict | None = None


class _Memory(msgspec.Struct, frozen=True):
    peak_rss_mib: float | None = None
    gpu_peak_mib: float | None = None


class _Precision(msgspec.Struct, frozen=True):
    name: str = ""


class _Row(msgspec.Struct, frozen=True):
    subject: str
    task: str
    device: str
    batch: int
    status: str
    reason: str | None = None
    error: _Error | None = None
    speed: _Speed | None = None
    memory: _Memory | None = None
    environment: Values | None = None
    training: _Training | None = None
    precision: _Precision | None = None


class _Digest(msgspec.Struct, frozen=True):
    digest: str | None = None


class _Reference(msgspec.Struct, frozen=True):
    framework: str = ""
    environment: Values | None = None


class _Host(msgspec.Struct, frozen=True):
    cpu: str = ""
    cores: int = 0
    system: str = ""
    python: str = ""


class _Receipt(msgspec.Struct, frozen=True):
    """What one task was measured with."""

    settings: Values = {}
    weights: _Digest = _Digest()
    inputs: _Digest = _Digest()
    reference: _Reference = _Reference()


class _Result(msgspec.Struct, frozen=True):
    """A result file. Every field may be missing, because any JSON file may be read."""

    schema_version: Any = None
    model: str | None = None
    verdict: Outcome | None = None
    rows: list[_Row] | None = None
    created: str = ""
    xverify: str = ""
    tasks: list[str] = []
    complete: bool = True
    host: _Host = _Host()
    settings: Values = {}
    weights: _Digest = _Digest()
    inputs: _Digest = _Digest()
    reference: _Reference | None = None
    receipts: dict[str, _Receipt] = {}


_DECODER = msgspec.json.Decoder(_Result)
_UNIQUE = reading.unique(lambda name: ValueError(f"an object in it has {name!r} twice: keep the right one"))


def read(path: str | Path, modified: int) -> Entry:
    """What a history needs of a result file.

    modified: the time of the file, nanoseconds since 1970, which counts where the result does not say when it was made.
    Raises NotAResult and Unreadable, and OSError when the file cannot be opened.
    """
    with reading.opened(path) as file:
        content = file.read(LARGEST + 1)
    if len(content) > LARGEST:
        raise Unreadable(f"it is larger than {LARGEST >> 20} MiB")
    try:
        result = _DECODER.decode(content)
    except msgspec.ValidationError as error:
        raise _problem(content, error) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Unreadable(f"it is no JSON file, or only a part of one: {_short(error)}") from None
    given = {name: getattr(result, name) for name in NEEDED}
    if any(value is None for value in given.values()):
        raise NotAResult
    if type(result.schema_version) is not int or result.schema_version != SCHEMA_VERSION:
        raise _other_version(result.schema_version)
    if not result.rows:
        raise Unreadable("it has no row")
    try:
        json.loads(content, object_pairs_hook=_UNIQUE)  # the decoder takes the last of two values in silence
        return _entry(result, modified)
    except (ValueError, OverflowError, RecursionError) as error:
        raise Unreadable(_short(error)) from None


def _problem(content: bytes, error: msgspec.ValidationError) -> NotAResult | Unreadable:
    """Why a JSON file does not fit: it is another file, a result of another version, or a damaged one."""
    try:
        named = msgspec.json.decode(content, type=dict[str, msgspec.Raw])
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NotAResult()
    if not set(named) >= NEEDED:
        return NotAResult()
    version = bytes(named["schema_version"])
    return Unreadable(_short(error)) if version == str(SCHEMA_VERSION).encode() else _other_version(version.decode())


def _other_version(version: object) -> Unreadable:
    return Unreadable(f"it has schema version {_short(version)}; this xverify reads {SCHEMA_VERSION}")


def _short(value: object) -> str:
    return clean(" ".join(str(value).split())[:LONGEST_VALUE])


def clean(text: str) -> str:
    """The text without lone surrogates, which no database can hold."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


def _entry(result: _Result, modified: int) -> Entry:
    assert result.rows is not None  # ``read`` has looked
    assert result.verdict is not None
    baselines: dict[str, _Row] = {}
    for row in result.rows:
        baselines.setdefault(row.task, row)
    made = _microseconds(result.created, modified // 1000)
    own = _Receipt(result.settings, result.weights, result.inputs, result.reference or _Reference())
    receipts = {row.task: result.receipts.get(row.task, own) for row in result.rows}
    return Entry(
        clean(result.model or ""), ",".join(map(clean, result.tasks)), result.verdict.value, made, clean(result.xverify),
        result.complete, clean(result.host.cpu), _whole(result.host.cores, "host.cores"), clean(result.host.system),
        clean(result.host.python),
        tuple(_measurement(result, row, baselines[row.task], receipts[row.task]) for row in result.rows),
    )  # fmt: skip


def _microseconds(created: str, otherwise: int) -> int:
    """Microseconds from 1970 to a time in ISO 8601, which is in UTC when it has no zone. otherwise: for a text that is no time."""
    try:
        # Python 3.10 reads no Z.
        made = datetime.datetime.fromisoformat(created.removesuffix("Z") + ("+00:00" if created.endswith("Z") else ""))
        if made.tzinfo is None:
            made = made.replace(tzinfo=datetime.timezone.utc)
        microseconds = (made - EPOCH) // MICROSECOND
        time_of(microseconds)  # in UTC, it may be before the first year or after the last
        return microseconds
    except (ValueError, OverflowError):
        return min(max(otherwise, 0), LAST)


def _measurement(result: _Result, row: _Row, baseline: _Row, receipt: _Receipt) -> Measurement:
    error, speed, memory = row.error, row.speed, row.memory or _Memory()
    rho, floor = _residual(row)
    low, high = speed.ratio_ci if speed is not None else (None, None)
    counts = all(_counted(each) for each in (row, baseline)) and row is not baseline
    ratio = _number(speed.ratio, "ratio") if speed is not None and counts else None
    compared = ratio is not None and speed is not None and speed.verdict in COMPARED
    return Measurement(
        _key(result, row, receipt), clean(row.status), error.verdict.value if error is not None else None,
        clean(row.reason or (error.reason if error is not None else None) or ""), rho, floor, ratio,
        _number(low, "ratio_ci") if counts else None, _number(high, "ratio_ci") if counts else None,
        compared, clean(baseline.subject), _number(speed.fps, "fps") if speed is not None and _counted(row) else None,
        _number(memory.peak_rss_mib, "peak_rss_mib"), _number(memory.gpu_peak_mib, "gpu_peak_mib"),
        _conditions(result, row, baseline, receipt),
    )  # fmt: skip


def _residual(row: _Row) -> tuple[float | None, str]:
    """The residual in noise floors, and what the floor is: a key of ``limits.LIMITS``."""
    if row.training is not None:
        checks = row.training.checks if row.training.checks is not None else row.training.rungs or []
        ratios = [each.ratio for each in checks if each.ratio is not None]
        return _number(max(ratios, default=None), "ratio of a check"), "check"
    if row.error is None:
        return None, ""
    if row.error.noise_ratio is not None:
        return _number(row.error.noise_ratio, "noise_ratio"), "layers"
    return _number(row.error.float32_ratio, "float32_ratio"), "float32" if row.error.float32_ratio is not None else ""


def _counted(row: _Row) -> bool:
    """Whether a row has a speed that counts."""
    return row.speed is not None and row.speed.verdict != SpeedVerdict.REFUSED


def _number(value: float | None, name: str) -> float | None:
    """A number that may not be negative; None when it is not finite. Raises ValueError."""
    if value is None or not math.isfinite(value):
        return None
    if value < 0:
        raise ValueError(f"{name} is {value!r}: it must not be negative")
    return value


def _whole(value: int, name: str) -> int:
    if not 0 <= value <= 2**53:
        raise ValueError(f"{name} is {value}: a whole number must be between 0 and 2**53")
    return value


def _key(result: _Result, row: _Row, receipt: _Receipt) -> Key:
    threads = receipt.settings.get("threads")
    precision = row.training.precision if row.training is not None else row.precision.name if row.precision else ""
    return Key(
        clean(result.model or ""), clean(row.task), clean(row.subject), _whole(row.batch, "batch"),
        _whole(threads, "threads") if type(threads) is int else 0, clean(row.device), clean(precision),
        _written(receipt.settings), clean(result.host.cpu), _whole(result.host.cores, "host.cores"),
    )  # fmt: skip


def _written(settings: Mapping[str, Any]) -> str:
    """The settings that are no defaults and change what is measured, as JSON with sorted names."""
    kept = {}
    for name, value in settings.items():
        if name in IGNORED or value in (None, False, "") or value == [] or value == {}:
            continue
        if name in PATHS and isinstance(value, str):
            value = value.replace("\\", "/").rstrip("/").rpartition("/")[2]
        if name == "optimizer" and isinstance(value, dict):
            value = _without_defaults(value, _optimizer())
        if name not in _defaults() or value != _defaults()[name]:
            kept[name] = value
    return clean(json.dumps(kept, sort_keys=True, ensure_ascii=False))


@cache
def _defaults() -> Values:
    options = (*declared(CommonSettings), *declared(TrainingSettings))
    return {option.name: plain(option.default) for option in options}


@cache
def _optimizer() -> Values:
    return {**plain(asdict(Optimizer())), "name": None}  # its name is always shown


def _without_defaults(value: Any, defaults: Any) -> Any:  # Any: JSON values
    """The fields of nested objects that differ from these, under their present names."""
    if not isinstance(value, dict) or not isinstance(defaults, dict):
        return value
    named = {RENAMED.get(name, name): item for name, item in value.items()}
    compared = {name: _without_defaults(item, defaults.get(name)) for name, item in named.items()}
    return {
        name: item for name, item in compared.items()
        if item not in (None, {}, []) and item != defaults.get(name)
    }  # fmt: skip


def _conditions(result: _Result, row: _Row, baseline: _Row, receipt: _Receipt) -> tuple[tuple[str, str], ...]:
    """Name -> value of versions and digests, whose change may be why a result changed."""
    digests = {
        "model files": receipt.settings.get("folder_digest"),
        "weights": receipt.weights.digest,
        "inputs": receipt.inputs.digest,
    }
    values = {name: _short(value) for name, value in digests.items() if value}
    values |= {"xverify": result.xverify, "system": result.host.system, "Python of xverify": result.host.python}
    values |= _environment(row)
    if row is not baseline:
        values |= {f"{name} of the baseline": value for name, value in _environment(baseline).items()}
    values |= {f"{name} of the reference": value for name, value in _environment(receipt.reference).items()}
    return tuple(sorted((clean(name), clean(value)) for name, value in values.items() if value))


def _environment(of: _Row | _Reference) -> dict[str, str]:
    values = list((of.environment or {}).items())[:MOST_VALUES]
    return {
        name[:LONGEST_VALUE]: _short(value if isinstance(value, str) else json.dumps(value, sort_keys=True))
        for name, value in values
    }


def identity(of: object) -> int:
    """A number that is the same for equal values, in every process: 62 bits of their BLAKE2."""
    text = json.dumps(of, ensure_ascii=True, separators=(",", ":"))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") >> 2
