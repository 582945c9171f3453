"""The tutorial: its commands are run as they are written, in a terminal of 80 columns, and print what it shows."""

import re
from pathlib import Path

import pytest
from helpers.terminals import in_terminal

PAGE = (Path(__file__).parent.parent / "docs" / "tutorial.md").read_text()
NUMBER = re.compile(r"(?<![^\s(])-?(?:\d[\d,.]*(?:e[+-]?\d+)?|∞)(?=[*,;:)]*(?:\s|$))\*?")
SUBJECTS = ("torch:eager", "tensorflow:graph")
FREE = ("* not counted", "× floor: ", "Limits: ")  # what the machine of the run decides, and what may follow it


def files():
    """Path -> text of every file that the page tells its reader to write."""
    return dict(re.findall(r"^`(my_port/\w+\.py)`.*?```python\n(.*?)```", PAGE, re.MULTILINE | re.DOTALL))


def commands():
    """(command, lines that it prints) in order."""
    for block in re.findall(r"^```\n\$ (xverify .*?)^```", PAGE, re.MULTILINE | re.DOTALL):
        command, *lines = block.splitlines()
        yield command, lines


VERDICTS = ("EQUAL", "DRIFT", "DIFFERENT")


def steady(lines):
    """What is the same in every run: no figures, no columns that depend on the width of figures, nothing about noise."""
    kept, skipping = [], False
    for line in lines:
        if line.startswith(FREE) or "NO_STEADY_STATE" in line:
            skipping = True
        elif re.match(r"  \S+: |PASS|FAIL|training-parity", line):
            skipping = False
        words = line.replace("IDENTICAL", "EQUAL").split()
        if skipping or not words or words[0][0] in "─━":
            continue
        if words[0] in SUBJECTS:
            kept.append(f"{words[0]} {next(word for word in words if word in VERDICTS)}")
        else:
            kept.append(NUMBER.sub("#", " ".join(words)))
    return kept


def with_table(lines):
    """The lines without the head of the table of subjects, whose columns depend on the width of the figures."""
    return [line for line in steady(lines) if not re.match(r"items |subject |relative |FPS ", line)]


def test_figures_and_noise_are_left_out_of_the_comparison():
    shown = ["my_port, batch 32", "        items   relative", "subject    /s      error  verdict", "────"]
    shown += ["torch:eager  359.7*  1.9e-07  IDENTICAL", "* not counted: TOO NOISY", "  norm: eps=0.001", "Limits: a"]
    shown += ["        more of it", "PASS my_port: 2 of 2 subjects EQUAL; 118 s"]
    found = with_table(shown)
    assert found == [
        "my_port, batch #",
        "torch:eager EQUAL",
        "norm: eps=0.001",
        "PASS my_port: # of # subjects EQUAL; # s",
    ]
    assert with_table([shown[4].replace("IDENTICAL", "DIFFERENT")]) == ["torch:eager DIFFERENT"]


@pytest.mark.slow
def test_the_tutorial_finds_the_fault_and_ends_in_a_pass(tmp_path):
    assert set(files()) == {"my_port/spec.py", "my_port/torch.py", "my_port/tensorflow.py"}
    (tmp_path / "my_port").mkdir()
    for path, text in files().items():
        (tmp_path / path).write_text(text)
    keras = tmp_path / "my_port" / "tensorflow.py"
    [repaired] = re.findall(r"```python\n(    x = layers.*\n)```", PAGE)
    codes = []
    for number, (command, shown) in enumerate(commands()):
        if number == 2:
            wrong = next(line for line in keras.read_text().splitlines(keepends=True) if "LayerNormalization" in line)
            keras.write_text(keras.read_text().replace(wrong, repaired))
        done = in_terminal(tmp_path, *command.split()[1:], process=True)
        codes.append(done.code)
        assert with_table(done.screen) == with_table(shown), done.raw
    assert codes == [1, 1, 0, 0, 0]
    assert "<html" in (tmp_path / "report.html").read_text()
