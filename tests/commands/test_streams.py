"""Whatever happens to the standard streams, a command ends with its own exit code. Unexpected errors end with 3."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import cli, write_folder


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with the result of a passing run and of one with a mismatch."""
    folder = tmp_path_factory.mktemp("streams")
    port = write_folder(folder / "port", ("numpy", "honest"))
    assert cli(folder, "run", port, "--subjects", "numpy,honest", "--rerun", 8, "--json", folder / "r.json").code == 0
    return folder


COMMANDS = [
    (["explain", "r.json"], 0),
    (["run", "resnet51"], 2),
    # The others start as often, and write by the same streams.
    *(
        pytest.param(words, code, marks=pytest.mark.slow)
        for words, code in (
            (["diff", "r.json", "r.json"], 4),
            (["list"], 0),
            (["list", "--markdown"], 0),
            (["list", "--json"], 0),
            (["env", "list"], 0),
            (["completion", "bash"], 0),
            (["reproduce"], 0),
            (["weights", "digest", "none.npz"], 2),
            (["explain", "none.json"], 2),
        )
    ),
]


def shell(here, arguments, redirection, **environment):
    """The exit code of a command with these redirections, and what it printed elsewhere."""
    words = " ".join([sys.executable, "-m", "xverify", *arguments])
    done = subprocess.run(
        ["bash", "-c", f"{words} {redirection}; exit ${{PIPESTATUS[0]}}"],
        cwd=here, capture_output=True, env={**os.environ, **environment}, check=False, timeout=120,
    )  # fmt: skip
    return done.returncode, (done.stdout + done.stderr).decode(errors="replace")


@pytest.mark.parametrize(("arguments", "code"), COMMANDS, ids=str)
def test_streams_that_are_closed_or_plain_change_no_exit_code(here, arguments, code):
    plain_c = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ways = (
        (">&- 2>&- <&-", {}),
        ("2>&1 | head -c 1", {}),
        ("", {"PYTHONIOENCODING": "ascii"}),
        ("2>&-", {"PYTHONIOENCODING": "latin-1"}),
        (">&-", plain_c),
    )
    for redirection, environment in ways:
        found, said = shell(here, arguments, redirection, **environment)
        assert found == code, f"{redirection}: {said}"
        assert "Traceback" not in said
        assert "Exception ignored" not in said


@pytest.mark.slow
@pytest.mark.parametrize("redirection", [">&-", "2>&-", "| head -1", "2>&1 | head -1", ">ascii.txt"])
def test_a_passing_run_ends_with_its_own_code(here, redirection):
    run = ["run", "port", "--subjects", "numpy,honest", "--rerun", "8", "--json", "again.json"]
    environment = {"XVERIFY_FRAMEWORKS": str(Path(__file__).parents[1] / "faulty"), "PYTHONIOENCODING": "ascii"}
    found, said = shell(here, run, redirection, **environment)
    assert found == 0, said
    assert "Traceback" not in said
    if redirection == ">ascii.txt":
        text = (here / "ascii.txt").read_bytes().decode("ascii")
        assert "PASS port" in text
        assert "\\u" not in text


@pytest.mark.parametrize(
    "command", [["explain", "r.json"], ["--help"], ["run", "--help"], ["help", "check"], ["--version"]], ids=str
)
def test_a_report_that_cannot_be_written_is_no_success(here, command):
    found, said = shell(here, command, ">/dev/full")
    assert found == 3
    assert said == "xverify: standard output could not be written: No space left on device\n"


def test_a_file_does_not_get_the_number_of_a_closed_stream(here):
    """The result file is opened after the start. It holds JSON alone, and not what would have been printed."""
    found, _ = shell(here, ["optimizers", "--frameworks", "nothing", "--json", "o.json"], ">&- 2>&-")
    assert found == 2
    found, _ = shell(here, ["explain", "r.json"], ">&- 2>&-")
    assert found == 0


BROKEN = """
from xverify.framework.adapter import Framework

class Adapter(Framework):
    name = "broken"
    needs, modes = {{}}, {{}}

    @classmethod
    def subjects(cls):
        {fault}
"""


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ("raise KeyError('planted\\x1b[31m')", "KeyError"),
        ("raise SystemExit(0)", "SystemExit: 0"),
        ("raise GeneratorExit", "GeneratorExit"),
        ("return cls.subjects()", "RecursionError"),
    ],
)
def test_an_unexpected_error_is_one_line_and_ends_with_3(tmp_path, fault, kind):
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    (adapters / "broken.py").write_text(BROKEN.format(fault=fault))
    done = cli(tmp_path, "list", frameworks=adapters)
    assert done.code == 3
    assert len(done.err.splitlines()) == 1
    assert f"xverify list: unexpected {kind}" in done.err
    assert "\x1b" not in done.err
    log = Path(re.search(r"The traceback is in (\S+\.log);", done.err)[1])
    text = log.read_text()
    log.unlink()
    assert "Traceback" in text
    assert "broken.py" in text


def test_debug_prints_the_traceback(tmp_path):
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    (adapters / "broken.py").write_text(BROKEN.format(fault="raise KeyError('planted')"))
    environment = {"XVERIFY_FRAMEWORKS": str(adapters)}
    for arguments, more in ((["--debug", "list"], {}), (["list"], {"XVERIFY_DEBUG": "1"})):
        found, said = shell(tmp_path, arguments, "", **environment, **more)
        assert found == 3
        assert "Traceback" in said
        assert "unexpected KeyError: 'planted'. The traceback is above" in said


def test_a_full_temporary_folder_is_said_in_one_line(tmp_path):
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    fault = "import errno; raise OSError(errno.ENOSPC, 'No space left on device', '/tmp/somewhere')"
    (adapters / "broken.py").write_text(BROKEN.format(fault=fault))
    done = cli(tmp_path, "list", frameworks=adapters)
    assert done.code == 3
    assert "no space left on the disk: /tmp/somewhere: the temporary directory" in done.err
    assert "TMPDIR" in done.err
