"""Ranks that torchrun, ssh and srun start: right ones are EQUAL, every failure is a row, and no process stays."""

import getpass
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers.rankmodels import AVERAGED, BREAKING, FAILURES, folder

from xverify.environments import store as environments
from xverify.framework.discovery import load

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
TRAIN = ("--task", "train", "--steps", "3", "--threads", "2", "--ranks", 2)
MLP = ("run", "mlp", *TRAIN, "--subjects", "torch:eager")
ALONE = ("--launcher", "torchrun")


@pytest.fixture
def no_ssh(tmp_path):
    """The options of a program "ssh" that runs the command here, with no variable but those in the command."""
    program = tmp_path / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\nfor last; do :; done\nexec env -i PATH="$PATH" sh -c "$last"\n')
    program.chmod(0o755)
    return "--launcher", str(program), "--hosts", "localhost"


@pytest.fixture
def sshd(tmp_path):
    """The options for an sshd of this test, on 127.0.0.1."""
    program = shutil.which("sshd", path="/usr/sbin:/usr/local/sbin:" + os.environ["PATH"])
    if program is None or shutil.which("ssh") is None:
        pytest.skip("no OpenSSH server is installed")
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    for name in ("host", "key"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / name], check=True)
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {(tmp_path / 'host.pub').read_text()}")
    (tmp_path / "conf").write_text(
        f"Port {port}\nListenAddress 127.0.0.1\nHostKey {tmp_path}/host\nAuthorizedKeysFile {tmp_path}/key.pub\n"
        f"PasswordAuthentication no\nStrictModes no\nPidFile none\n"
    )
    options = ["-p", str(port), "-i", str(tmp_path / "key"), "-o", f"UserKnownHostsFile={tmp_path}/known"]
    server = subprocess.Popen([program, "-D", "-f", tmp_path / "conf"], stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 10
        while subprocess.run(["ssh", *options, "127.0.0.1", "true"], check=False, capture_output=True).returncode:
            if time.monotonic() > deadline:
                pytest.skip("an sshd of this user does not let it in")
            time.sleep(0.2)
        yield "--launcher", shlex.join(["ssh", *options]), "--hosts", f"127.0.0.1,{getpass.getuser()}@127.0.0.1"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture
def slurm():
    """The options for the cluster of Slurm of which this machine is a node, and the beginning of a command in an allocation."""
    if shutil.which("salloc") is None:
        pytest.skip("Slurm is not installed")
    if subprocess.run(["sinfo", "-h"], check=False, capture_output=True, timeout=60).returncode:
        pytest.skip("no controller of Slurm answers")
    return ["salloc", "--quiet", "-N", "1", "-n", "2"]


def row(done, subject="torch:eager"):
    found = done.row(subject)
    return found["status"], found["error"] and found["error"]["verdict"], found["reason"]


def processes_in(place):
    """The processes whose temporary files are in this folder."""
    found = []
    for each in psutil.process_iter():
        try:
            if (
                each.environ().get("XVERIFY_WORKER", "").startswith(str(place))
                and each.status() != psutil.STATUS_ZOMBIE
            ):
                found.append(each)
        except psutil.Error:
            continue
    return found


def test_torchrun_starts_ranks(xverify):
    done = xverify(*MLP, *ALONE)
    assert done.code == 0, done.out + done.err
    assert row(done)[1] == "EQUAL"
    assert done.row("torch:eager")["training"]["ranks"] == "2 ranks, plan ddp, 16 + 16 items, started by torchrun"
    assert done.result["settings"]["launcher"] == "torchrun"


def test_ssh_starts_ranks(xverify, sshd):
    done = xverify(*MLP, "--plan", "fsdp", *sshd)
    assert done.code == 0, done.out + done.err
    assert row(done)[1] == "EQUAL"
    assert "started by ssh on 127.0.0.1, " in done.row("torch:eager")["training"]["ranks"]


def test_srun_starts_ranks(slurm, tmp_path):
    asked = [*map(str, MLP), "--launcher", "srun", "--rendezvous", f"{socket.gethostname()}:29517"]
    done = subprocess.run(
        [*slurm, sys.executable, "-m", "xverify", *asked], check=False, capture_output=True, text=True, timeout=300,
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "PASS mlp: 1 of 1 subjects EQUAL" in done.stdout


def test_the_command_of_ssh_has_all_that_a_worker_needs(xverify, no_ssh):
    done = xverify(*MLP, *no_ssh)
    assert done.code == 0, done.out + done.err
    assert row(done)[1] == "EQUAL"


@pytest.mark.parametrize("launcher", ["torchrun", "ssh"])
def test_ranks_that_fail_under_a_launcher_end_as_rows(xverify, tmp_path, launcher, request):
    options = ALONE if launcher == "torchrun" else request.getfixturevalue("sshd")
    names = ("dies", "raises", "hangs", "other")
    files = {"torch": AVERAGED, **{f"torch-{name}": BREAKING.format(FAILURES[name][0]) for name in names}}
    files["torch-early"] = "if os.environ.get('RANK') == '1':\n    os.kill(os.getpid(), signal.SIGKILL)\n" + AVERAGED
    place = folder(tmp_path / "net", files)
    done = xverify("run", place, *TRAIN, "--plan", "own", "--timeout", 40, *options)
    assert done.code == 3, done.out + done.err
    assert row(done)[1] == "EQUAL"
    for name in names:
        _, says, status = FAILURES[name]
        assert (row(done, f"torch-{name}:eager")[0], says in row(done, f"torch-{name}:eager")[2]) == (status, True), (
            name
        )
    assert row(done, "torch-early:eager")[2].startswith("rank 1: killed by SIGKILL while")


@pytest.mark.parametrize("kind", ["torchrun", "ssh"])
def test_a_port_in_use_is_told(xverify, no_ssh, kind):
    with socket.socket() as other:
        other.bind(("0.0.0.0", 0))
        other.listen()
        address = f"127.0.0.1:{other.getsockname()[1]}"
        options = ALONE if kind == "torchrun" else no_ssh
        done = xverify(*MLP, "--timeout", 60, *options, "--rendezvous", address)
    assert done.code == 3, done.out + done.err
    assert f"port {address[10:]} of the rendezvous {address} is in use: end the program that has it" in row(done)[2]


@pytest.mark.parametrize("kind", ["torchrun", "ssh"])
def test_an_address_that_nobody_reaches_ends_in_time(xverify, no_ssh, kind):
    options = ALONE if kind == "torchrun" else no_ssh
    begun = time.monotonic()
    done = xverify(*MLP, "--timeout", 50, *options, "--rendezvous", "nowhere.invalid:29518")
    assert done.code == 3, done.out + done.err
    assert "does not know the rendezvous nowhere.invalid:29518: " in row(done)[2]
    done = xverify(*MLP, "--timeout", 50, *options, "--rendezvous", "192.0.2.1:29518")  # RFC 5737: an address of nobody
    assert done.code == 3, done.out + done.err
    assert "the rendezvous 192.0.2.1:29518 was not reached in time" in row(done)[2]
    assert time.monotonic() - begun < 200


def test_a_machine_that_refuses_is_quoted(xverify, no_ssh):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    if shutil.which("ssh") is None:
        pytest.skip("no ssh is installed")
    done = xverify(*MLP, "--launcher", f"ssh -p {port}", "--hosts", "127.0.0.1")
    assert done.code == 3, done.out + done.err
    says = f"exited with status 255 while starting; its last line: ssh: connect to host 127.0.0.1 port {port}: "
    assert row(done)[2].startswith(says)


def test_a_rank_that_never_starts_ends_the_others(xverify, no_ssh, tmp_path):
    """The second machine has no such interpreter: rank 0 does not wait for the time limit."""
    program = tmp_path / "bin" / "ssh"
    program.write_text(
        program.read_text().replace("exec", 'case "$*" in *-rank-1*) echo no such program >&2; exit 127;; esac\nexec')
    )
    begun = time.monotonic()
    done = xverify(*MLP, *no_ssh)
    assert done.code == 3, done.out + done.err
    assert row(done)[2] == "rank 1: exited with status 127 while starting; its last line: no such program"
    assert time.monotonic() - begun < 120


def _interruptible():
    """Let SIGINT end the command, which a shell that runs the tests in the background switches off."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.skipif(sys.platform != "linux", reason="looks at the variables of processes")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
@pytest.mark.parametrize("kind", ["torchrun", "ssh"])
def test_no_process_stays_when_the_command_ends(tmp_path, request, kind, number):
    options = ALONE if kind == "torchrun" else request.getfixturevalue("sshd")
    place = folder(tmp_path / "net", {"torch": BREAKING.format(FAILURES["hangs"][0])})
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    asked = ["run", str(place), *map(str, TRAIN), "--plan", "own", *options]
    with (tmp_path / "said").open("wb") as said:
        command = subprocess.Popen(
            [sys.executable, "-m", "xverify", *asked], env={**os.environ, "TMPDIR": str(temporary)}, stderr=said, stdout=said,
            cwd=Path(__file__).parents[2], start_new_session=True, preexec_fn=_interruptible,
        )  # fmt: skip
        try:
            deadline = time.monotonic() + 120
            # Rank 1 hangs in a pass, and rank 0 waits for it.
            while b"first step" not in (tmp_path / "said").read_bytes():
                assert time.monotonic() < deadline, (tmp_path / "said").read_text()
                time.sleep(0.2)
            time.sleep(2)
            assert len(processes_in(temporary)) >= 4
            command.send_signal(number)
            command.wait(30)
            deadline = time.monotonic() + 15
            while (left := processes_in(temporary)) and time.monotonic() < deadline:
                time.sleep(0.2)
            assert not left, [each.cmdline() for each in left]
        finally:
            command.kill()
            command.wait()


def test_devices_of_jax_have_no_launcher(xverify):
    if environments.chosen(load("jax")) is None:
        pytest.importorskip("jax")
    done = xverify("run", "mlp", *TRAIN, "--subjects", "jax", *ALONE)
    assert done.code == 3, done.out + done.err
    assert "the ranks of jax are devices of one process on this machine: leave --launcher out" in row(done, "jax")[2]


def test_a_sweep_places_ranks_as_one_cell(xverify, tmp_path):
    pytest.importorskip("distributed")
    file = tmp_path / "ranks.toml"
    file.write_text(
        '[settings]\nmodel = "mlp"\ntask = "train"\nsubjects = ["torch:eager"]\nranks = 2\nsteps = 3\nlauncher = "torchrun"\n'
        '[matrix]\nplan = ["ddp", "fsdp"]\n'
    )
    done = xverify("sweep", file, "--cluster", "local:1")
    assert done.code == 0, done.out + done.err
    assert "2 cells" in " ".join(done.out.split()), done.out
