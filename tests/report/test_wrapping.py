"""Sentences in lines: between words, with their indent, and never within a command."""

import re

import pytest
from rich.text import Text

from xverify.report.wrapping import wrapped

WORDS = "Layers: 12 of 12 were checked, each computed again from the inputs that it received"


def lines(text, width):
    return wrapped(Text(text), width).plain.split("\n")


@pytest.mark.parametrize("width", [24, 40, 60, 80, 120])
@pytest.mark.parametrize("indent", [0, 2, 8])
def test_lines_fit_and_keep_their_indent(width, indent):
    found = lines(" " * indent + WORDS, width)
    assert " ".join(line.strip() for line in found) == WORDS
    assert max(map(len, found)) <= width
    starts = [len(line) - len(line.lstrip()) for line in found]
    assert starts == [indent] + [indent + 2] * (len(found) - 1)


@pytest.mark.parametrize(
    "command",
    [
        "xverify explain --faults",
        "xverify run ./my_port --subjects torch:eager,jittor --layers",
        "xverify report r.json --html page.html",
        "xverify check FILE.onnx --against model.py:build",
        "pip install onnxruntime==1.20",
        "`any text in backticks; also this`",
        "--effort standard",
    ],
)
def test_a_command_is_never_broken(command):
    found = [lines(f"{WORDS[:length]} {command} {WORDS}", 64) for length in range(5, 70)]
    assert all(any(command in line for line in each) for each in found)


def test_a_command_that_is_too_long_has_a_line_of_its_own():
    command = "`xverify run ./a_port_with_a_long_name --subjects torch:eager,tensorflow:graph`"
    assert lines(f"type {command} now", 40) == ["type", f"  {command}", "  now"]


def test_a_long_name_is_cut_and_styles_stay():
    found = lines("see " + "y" * 100, 40)
    assert max(map(len, found)) <= 40
    assert "".join(line.strip() for line in found[1:]) == "y" * 100
    text = wrapped(Text.assemble("a word ", ("and more words that are red", "red")), 20)
    red = {text.plain[span.start : span.end] for span in text.spans if span.style == "red"}
    assert re.sub(r"\s+", " ", " ".join(sorted(red, key=text.plain.index))) == "and more words that are red"
