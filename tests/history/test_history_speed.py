"""A question to many results is answered within two seconds, also when some of them are new.

`pytest -m long` asks 100,000 result files. On two cores, reading them for the first time took 13 seconds (7,900 files of 7 KiB a
second), and every later answer 0.8 to 1.1 seconds, of which half was for the look at the sizes and times of all files.
"""

import datetime
import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers.historyresults import result

pytest.importorskip("duckdb")
ROOT = Path(__file__).parents[2]
SECONDS = 2.0
MODELS = 100
BEGIN = datetime.datetime(2026, 1, 1, tzinfo=datetime.timezone.utc)


def varied(count, folder, first=0):
    """Write result files of MODELS models, a minute apart, by putting other values into the text of one result."""
    numbers = random.Random(count)
    text = json.dumps(result(1, model="@model", ratio=1.25, width=0.25, memory=123.25).to_dict())
    for wanted in ("@model", "2026-11-01T10:00:00+00:00", '"ratio": 1.25', "[1.0, 1.5]", "123.25"):
        assert wanted in text
    for number in range(first, first + count):
        place = folder / f"{number // 1000}"
        place.mkdir(parents=True, exist_ok=True)
        ratio, memory = numbers.gauss(1.2, 0.01), numbers.gauss(270.0, 5.0)
        made = text.replace("@model", f"model{number % MODELS}").replace("123.25", f"{memory:.3f}")
        made = made.replace("2026-11-01T10:00:00+00:00", (BEGIN + datetime.timedelta(minutes=number)).isoformat())
        made = made.replace('"ratio": 1.25', f'"ratio": {ratio:.4f}')
        made = made.replace("[1.0, 1.5]", f"[{ratio - 0.02:.4f}, {ratio + 0.02:.4f}]")
        (place / f"{number}.json").write_text(made)


def ask(folder, *options):
    """(seconds from the start of the command to its end, its output)"""
    command = [sys.executable, "-m", "xverify", "history", "--results", str(folder), *options]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=ROOT, env={**os.environ}, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1), done.stderr
    return time.perf_counter() - begun, done.stdout


@pytest.mark.slow
@pytest.mark.timed
@pytest.mark.parametrize("count", [3000, pytest.param(100_000, marks=pytest.mark.long)])
def test_a_question_to_many_results_is_answered_within_two_seconds(count, tmp_path):
    varied(count, tmp_path)
    first, out = ask(tmp_path, "--quiet")
    assert f"{2 * MODELS} series" in out
    print(f"{count:,} results read in {first:.1f} s: {count / first:,.0f} a second")
    questions = {
        "everything": ("--format", "csv", "--all"),
        "one model": ("model7", "--since", "2026-01-02"),
        "a page": ("--html", str(tmp_path / "page.html"), "--quiet"),
        "SQL": ("--sql", "SELECT model, median(ratio) FROM measurements JOIN series USING (series) GROUP BY model"),
    }
    for name, options in questions.items():
        taken = min(ask(tmp_path, *options)[0] for _ in range(3))
        print(f"{name}: {taken:.2f} s")
        assert taken < SECONDS, name
    varied(10, tmp_path, first=count)
    taken, out = ask(tmp_path, "--format", "json")
    print(f"ten new files: {taken:.2f} s")
    assert json.loads(out)["results"] == count + 10
    assert taken < SECONDS
