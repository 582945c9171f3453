"""Commands in a terminal, which is a pseudo-terminal here: one live table, then a report that fits into its width."""

import os
import re

import pytest
from conftest import FAULTY, MODEL, write_folder
from helpers.commandline import forked
from helpers.terminals import COLUMNS, in_terminal, screen

from xverify.commands._main import main

COLOUR = re.compile(r"\x1b\[(?:\d+;)*(?:3\d|4\d|9\d|10\d)[;m]")
WRONG = MODEL.replace("return h @", "return 1.01 * h @")


@pytest.fixture
def port(tmp_path):
    return write_folder(tmp_path / "port", ("numpy", "honest"))


def run(port, *more, **settings):
    arguments = ("run", port.name, "--subjects", "numpy,honest", "--warmup", "1", "--rerun", "8")
    return in_terminal(port.parent, *arguments, *more, **settings)


def test_the_screen_is_what_a_terminal_shows():
    assert screen("a\r\nbb\r\x1b[2K\x1b[1A\x1b[2Kc\r\n\x1b[1mdd\x1b[0m") == ["c", "dd"]


def test_one_table_is_drawn_and_erased_and_the_report_stays(port):
    done = run(port)
    assert done.code == 0, done.raw
    table = next(part for part in re.split(r"\x1b\[1A", done.raw) if "timing in alternation" in part)
    assert re.search(r"round (\d+) of \1", done.raw)
    assert "warm" in table
    assert all(word in done.raw for word in ("subject", "phase", "progress", "time left"))
    text = "\n".join(done.screen)
    assert not any(word in text for word in ("time left", "timing in alternation", "warming up", "importing")), text
    assert done.screen[-2].startswith("PASS port: 2 of 2 subjects EQUAL"), text
    assert sum(line.startswith("Limits: 4 input cases") for line in done.screen) == 1


def test_what_scrolled_away_stays():
    assert screen("a\r\nb\r\nc\x1b[2A\rx", 2) == ["a", "x", "c"]


def test_nothing_of_the_table_stays_where_it_has_more_lines_than_the_terminal(port):
    done = run(port, lines=6)
    assert done.code == 0, done.raw
    assert "time left" in done.raw
    text = "\n".join(done.screen)
    assert not any(word in text for word in ("time left", "phase", "warming up", "importing", "waiting")), text
    assert done.screen[-2].startswith("PASS port: 2 of 2 subjects EQUAL"), text


@pytest.mark.parametrize("columns", [80, 140])
@pytest.mark.parametrize("more", [(), ("--details",), ("--layers",)], ids=["short", "details", "layers"])
def test_every_line_fits_and_the_errors_stay(port, columns, more):
    done = run(port, *more, columns=columns)
    assert done.code == 0, done.raw
    too_long = [line for line in done.screen if len(line) > columns]
    assert too_long == []
    assert "…" not in "\n".join(done.screen[:6])
    head = " ".join(" ".join(done.screen[:5]).split())
    for title in ("relative", "mean", "max", "verdict"):
        assert title in head


@pytest.mark.parametrize("columns", [80, 140])
def test_a_fault_is_told_once(tmp_path, columns):
    port = write_folder(tmp_path / "port", ("numpy", "honest"))
    (port / "honest.py").write_text(WRONG)
    done = run(port, columns=columns)
    assert done.code == 1, done.raw
    text = " ".join(" ".join(done.screen).split())
    assert text.count("error is") == 1
    assert text.count("DIFFERENT") == 2, "in its row, and in the count of the last line"


@pytest.mark.slow
def test_no_color_takes_the_colours_and_no_word(port):
    plain, coloured = run(port, NO_COLOR="1"), run(port)
    assert COLOUR.search(coloured.raw)
    assert not COLOUR.search(plain.raw)
    assert "EQUAL" in "\n".join(plain.screen)


def test_a_dumb_terminal_gets_plain_lines(port):
    done = run(port, TERM="dumb")
    assert done.code == 0
    assert "\x1b" not in done.raw
    assert re.search(r"timing: round (\d+) of \1", done.raw)
    assert max(map(len, done.screen)) <= COLUMNS


def test_an_encoding_without_symbols_gets_ascii(port):
    done = run(port, PYTHONIOENCODING="ascii", NO_COLOR="1", process=True)
    assert done.code == 0
    assert done.raw.isascii()
    assert "\\u" not in done.raw
    assert "timing in alternation" in done.raw


@pytest.mark.usefixtures("in_one_process")
@pytest.mark.parametrize("environment", [{}, {"FORCE_COLOR": "1"}, {"TTY_COMPATIBLE": "1"}])
def test_a_pipe_gets_no_live_table(port, environment):
    command = ["run", str(port), "--subjects", "numpy,honest", "--rerun", "8"]
    variables = {**os.environ, "XVERIFY_FRAMEWORKS": str(FAULTY), "TERM": "xterm", **environment}
    code, text = forked(lambda: main(command), port.parent, variables)
    assert code == 0, text
    assert re.search(r"timing: round (\d+) of \1", text)
    assert re.search(r"\x1b\[[?\d;]*[^m\d;?]", text) is None
    if not environment:
        assert "\x1b" not in text


def test_a_subject_that_fails_is_shown_with_its_status(tmp_path):
    port = write_folder(tmp_path / "port", ("numpy", "honest"))
    (port / "honest.py").write_text("def build():\n    raise ValueError('no such model')\n")
    done = run(port, process=True)
    assert done.code == 3, done.raw
    assert "failed" in done.raw.split("warming up")[0], "in the live table"
    text = " ".join(" ".join(done.screen).split())
    assert text.count("no such model") == 1
