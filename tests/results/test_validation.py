"""A result file with values that no run can have is refused in one line; what it holds is printed and not obeyed."""

import json
import subprocess
import sys

import pytest
from conftest import cli, write_folder

from xverify.commands._main import main
from xverify.errors import UsageError
from xverify.results.file import read

pytestmark = pytest.mark.usefixtures("in_one_process")


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    port = write_folder(folder / "port", ("numpy", "honest"))
    assert cli(folder, "run", port, "--subjects", "numpy,honest", "--rerun", 8, "--json", folder / "r.json").code == 0
    return folder / "r.json"


def changed(good, tmp_path, *path, value):
    values = json.loads(good.read_text())
    place = values
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    file = tmp_path / "changed.json"
    file.write_text(json.dumps(values))
    return file


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        (("rows",), [], "no task or no row"),
        (("tasks",), [], "no task or no row"),
        (("rows", 0, "task"), "train", "is not one of the tasks"),
        (("rows", 0, "speed", "samples", 0, "seconds"), 0.0, "both must be above 0"),
        (("rows", 0, "speed", "samples", 0, "seconds"), -1.0, "must not be negative"),
        (("rows", 0, "speed", "samples", 0, "calls"), 0, "both must be above 0"),
        (("rows", 0, "speed", "fps"), None, "nan must be above 0"),
        (("rows", 1, "batch"), -4, "between 0 and"),
        (("rows", 1, "batch"), 10**60, "no result|no JSON|between 0 and"),
        (("rows", 1, "error", "rel_rms"), -0.5, "must not be negative"),
        (("noise", "canary_seconds"), [0.0], "seconds must be above 0"),
        (("schema_version",), True, "schema version True"),
        (("schema_version",), 2, "schema version 2"),
    ],
)
def test_an_impossible_value_is_refused_in_one_line(good, tmp_path, path, value, says):
    file = changed(good, tmp_path, *path, value=value)
    with pytest.raises(UsageError, match=says) as caught:
        read(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [b"[" * 200_000, b'{"a":' * 100_000, b"\xff\xfe{}", b'{"schema_version": NaN}', b"1" * 6000, b"1e999", b"", b"\0"],
)
def test_a_file_that_is_no_json_is_refused_in_one_line(tmp_path, content, capsys):
    file = tmp_path / "r.json"
    file.write_bytes(content)
    assert main(["explain", str(file)]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_deep_nesting_in_the_free_values_of_an_environment(good, tmp_path, capsys):
    nested = 0
    for _ in range(900):
        nested = [nested]
    file = changed(good, tmp_path, "rows", 0, "environment", value={"a": nested})
    assert main(["explain", str(file)]) in (0, 2)
    assert len(capsys.readouterr().err.splitlines()) <= 1


def test_what_a_file_holds_is_shown_and_not_obeyed(good, tmp_path, capsys):
    evil = "[bold]x[/] [/nothing] \x1b[2J\x9b2J\u202e:smile: \\"
    text = good.read_text()
    for word in ('"port"', '"numpy"', '"honest"', '"forward"'):
        text = text.replace(word, json.dumps(word.strip('"') + evil))
    file = tmp_path / f"r{evil.replace('/', '_')}.json"
    file.write_text(text)
    for words in (["explain", str(file)], ["diff", str(file), str(file)], ["diff", str(good), str(file)]):
        assert main(words) in (0, 2, 4)
        said = "".join(capsys.readouterr())
        assert "[bold]x" in said
        assert ":smile:" in said
        assert said.replace("\n", "").isprintable()


def test_a_directory_and_a_file_that_never_ends(tmp_path, capsys, monkeypatch):
    from xverify.results import file

    monkeypatch.setattr(file, "LARGEST", 1000)
    assert main(["explain", str(tmp_path)]) == 2
    assert main(["explain", "/dev/zero"]) == 2
    assert "it is a device, not a file" in capsys.readouterr().err
    (tmp_path / "large.json").write_text("1" * 2000)
    assert main(["explain", str(tmp_path / "large.json")]) == 2
    assert "larger than" in capsys.readouterr().err


def test_a_wrong_word_on_the_command_line_is_shown_and_not_obeyed(tmp_path):
    for words in (["explain", "\x1b[2J[red].json"], ["run", "\x1b[2J"], ["\x1b[2J"], ["run", "mlp", "--b\x1b[2J"]):
        done = subprocess.run([sys.executable, "-m", "xverify", *words], capture_output=True, text=True, check=False)
        assert done.returncode == 2
        assert "\x1b" not in done.stderr + done.stdout
        assert "\\x1b[2J" in done.stderr
