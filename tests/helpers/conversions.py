"""What tests of ``xverify convert`` share: a planted converter, and the rows of a result."""

import json
from pathlib import Path


def plant(tmp_path, monkeypatch, name, text):
    """Write a target into a folder of XVERIFY_CONVERTERS."""
    place = tmp_path / "planted"
    place.mkdir(exist_ok=True)
    (place / f"{name}.py").write_text(text)
    monkeypatch.setenv("XVERIFY_CONVERTERS", str(place))


def rows(file):
    """Question -> row of a result file."""
    return {row["task"]: row for row in json.loads(Path(file).read_text())["rows"]}


def verdict(file):
    """The verdict of the comparison with the source."""
    return rows(file)["conversion"]["error"]["verdict"]
