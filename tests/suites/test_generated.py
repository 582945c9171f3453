"""Generated cases: a sample of each part, and what the judge says of a command that does what no command may do."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import pytest

SUITES = Path(__file__).parents[2] / "suites"
sys.path.insert(0, str(SUITES))
import case_outputs  # noqa: E402
import case_places  # noqa: E402
import case_records  # noqa: E402
import case_texts  # noqa: E402
import cases  # noqa: E402
import scenes  # noqa: E402
from cases import Case  # noqa: E402
from helpers.outputplaces import onnx_file  # noqa: E402

pytestmark = pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="the suite makes pipes and forks")
PARTS = {"outputs": case_outputs, "places": case_places, "texts": case_texts, "records": case_records}


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """The folder of the scenes, without model files of frameworks, and two scenes with what they read."""
    folder = tmp_path_factory.mktemp("scenes")
    scenes.make(folder, "run")
    return folder, [
        scenes.traced(each, folder) for each in scenes.listed() if each.name in ("run", "report r.json results/r1.json")
    ]


def test_what_a_command_reads_is_seen(made):
    _, [run, report] = made
    assert [str(path) for path in run.reads] == ["port/numpy.py", "port/spec.py"]
    assert [str(path) for path in report.reads] == ["r.json", "results/r1.json"]


def test_every_command_that_declares_an_output_has_a_scene():
    from xverify.commands._main import commands

    writing = {name for name in commands() if case_outputs.options((name,))}
    assert writing >= {"run", "check", "report", "diff", "history", "sweep", "replay", "convert", "mutate"}
    assert writing - {scene.command for scene in scenes.listed()} == set()
    assert {"optimizers", "reproduce", "selftest"} <= writing


def test_every_option_that_names_an_output_is_in_the_cases(tmp_path):
    """With a file of the user, and with each other output of its command."""
    from xverify.commands._main import commands

    named = {(name, flag) for name in commands() for flag in case_outputs.options((name,))}
    made = list(case_outputs.generate(list(scenes.listed()), tmp_path))
    assert named - {(case.words[0], word) for case in made for word in case.words} == set()
    for command, flag in named:
        kinds = {case.kind.partition(",")[0] for case in made if case.words[0] == command and flag in case.words}
        others = len([each for each in named if each[0] == command]) > 1
        assert kinds >= {"outputs: of the user", *(["outputs: two outputs"] if others else [])}, (command, flag)


@pytest.mark.parametrize("part", PARTS)
def test_a_sample_of_every_part(made, part):
    folder, known = made
    generated = list(PARTS[part].generate(known, folder))
    assert len(generated) > 50
    counts, wrong = cases.run(cases.sample(generated, 12), 2)
    assert wrong == []
    assert sum(row["right"] for row in counts.values()) == 12


def test_another_seed_takes_other_cases():
    every = [Case("kind", str(number), Path(), ()) for number in range(100)]
    names = [[each.name for each in cases.sample(every, 10, seed)] for seed in ("0", "1")]
    assert [len(set(each)) for each in names] == [10, 10]
    assert names[0] != names[1]
    assert cases.sample(every, 200) == every


@pytest.mark.slow
@pytest.mark.parametrize("words", ["digest ext.onnx", "diff ext.onnx ext.onnx", "convert ext.onnx new.npz"])
@pytest.mark.parametrize("kind", ["unreadable", "pipe", "absent"])
def test_external_data_that_cannot_be_read_is_named(tmp_path, words, kind):
    """Also where the right to read it is missing, which root loses in these cases."""
    pytest.importorskip("onnx")
    onnx_file(tmp_path / "ext.onnx", external=True)
    prepare = partial(case_places._put, read=Path("ext.data"), kind=kind)
    case = Case("kind", words, tmp_path, ("weights", *words.split()), prepare, (2,), says=("ext.onnx", "'ext.data'"))
    assert cases.run([case], 1)[1] == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "only"), [("outputs", "run*"), ("places", "w*"), ("texts", "run"), ("records", "run")]
)
def test_a_larger_sample_as_it_is_made(part, only):
    done = subprocess.run(
        [sys.executable, SUITES / "faults.py", "--part", part, "--only", only, "--files", "150"],
        capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-2000:]
    assert int(re.search(r"^all +(\d+)", done.stdout, re.MULTILINE)[1]) == 150


# -- the judge --------------------------------------------------------------------------------------------------------


def writes(words):
    Path("mine").write_text("changed")
    return 0


def removes(words):
    Path("mine").unlink()
    return 0


def makes(words):
    Path("other").write_text("")
    return 0


def says(*lines, code=2, to="stderr"):
    def command(words):
        print(*lines, sep="\n", file=getattr(sys, to))
        return code

    return command


def leaves_a_folder(words):
    tempfile.mkdtemp()
    return 0


def leaves_a_process(words):
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"], start_new_session=True)
    return 0


def waits(words):
    time.sleep(60)
    return 0


def breaks(words):
    raise KeyError("x")


def ends(words):
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        (lambda words: 0, ""),
        (says("xverify run: no"), ""),
        (says("a\n"), "its message is not one line"),
        (says("xverify run: no", "and more"), "its message is not one line"),
        (says("xverify run: no", code=5), "exit code 5"),
        (says("xverify run: unexpected KeyError", code=3), "it ends with 3"),
        (says("\x1b[31m", code=0, to="stdout"), "it prints the character '\\x1b'"),
        (says("a\u202eb", code=0, to="stdout"), "it prints the character '\\u202e'"),
        (writes, "mine has changed"),
        (removes, "mine is gone"),
        (makes, "other is new"),
        (leaves_a_folder, "it leaves ['tmp"),
        (leaves_a_process, "it leaves 1 processes"),
        (waits, "no answer within 1 s"),
        (breaks, "it ends with 70"),
        (ends, "it ends with -9"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_judge_tells_a_fault(command, wrong, tmp_path, monkeypatch):
    (tmp_path / "mine").write_text("mine")
    monkeypatch.setattr(cases, "command", command)
    monkeypatch.setattr(cases, "SECONDS", 1.0 if command is waits else 60.0)
    monkeypatch.setattr(cases, "LEFT_SECONDS", 0.2)
    [why] = cases.run([Case("kind", "name", tmp_path, ("run",))], 1)[1] or [""]
    assert wrong in why
    assert bool(wrong) == bool(why)
    assert (tmp_path / "mine").read_text() == "mine"


def test_a_text_that_is_obeyed_is_told(tmp_path):
    ended = cases.Ended(0, "x\nPASS everything\n", "")
    assert "a line is theirs" in case_texts.terminal(ended, tmp_path)
    assert "a line is theirs" in case_texts.terminal(cases.Ended(0, "", " ::error::x"), tmp_path)
    assert "markup is obeyed" in case_texts.terminal(cases.Ended(0, "x y z", ""), tmp_path)
    assert "it has <a href=" in case_texts.markdown(cases.Ended(0, "see http://evil.example", ""), tmp_path)
    assert "a cell is a formula" in case_texts.table(cases.Ended(0, "a,=HYPERLINK(1)\n", ""), tmp_path)
    (tmp_path / case_texts.PAGE).write_text("<p><img src=x onerror=zap()></p>")
    assert "it has <img" in case_texts.page(ended, tmp_path)
    assert case_texts.terminal(cases.Ended(0, "a name: 'PASS everything'\n", ""), tmp_path) == ""


def test_a_field_is_damaged_in_its_place_alone():
    values = {"a": [{"b": "c"}], "d": 1}
    assert list(case_records.places(values)) == [("a",), ("a", 0, "b"), ("d",)]
    made = {damage: case_records.text(case_records.damaged(values, ("d",), damage)) for damage in case_records.DAMAGES}
    assert made["twice"] == '{"a": [{"b": "c"}], "d": 1, "d": "x"}'
    assert made["absent"] == '{"a": [{"b": "c"}]}'
    assert made["null"] == '{"a": [{"b": "c"}], "d": null}'
    assert len({*made.values(), str(values)}) == len(made) + 1
