"""What starts ranks elsewhere: what a user may ask for, the commands, how an end is told, and that a worker ends with its input."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest

from xverify.engine.stages import subjects_of
from xverify.errors import Failed, UsageError
from xverify.messages import lifeline
from xverify.messages.training import JoinRanks
from xverify.processes.command import worker_command
from xverify.processes.launcher import Place
from xverify.processes.log import Log
from xverify.reference.request import resolve
from xverify.worker.session import Session
from xverify.workload.launch import Launch, launch, unmet
from xverify.workload.options import RunSettings

WORKER = ("python3", "-c", "import sys; print('a b')")
VARIABLES = {"OMP_NUM_THREADS": "1", "TMPDIR": "/shared/a b", "MY_PASSWORD": "secret", "HF_TOKEN": "secret"}
REFUSED = [
    ((None, ("node1",), None, 2), "--hosts belongs to --launcher"),
    ((None, (), "node1:1", 2), "--rendezvous belongs to --launcher"),
    (("torchrun", (), None, None), "--launcher belongs to --ranks"),
    (("mpirun", (), None, 2), "write torchrun, srun or ssh"),
    (("bin/torchrun", (), None, 2), "write torchrun, srun or ssh"),
    (("", (), None, 2), "write torchrun, srun or ssh"),
    (("ssh -i 'key", ("node1",), None, 2), "no closing quotation"),
    (("ssh", (), None, 2), "needs the machines: name them with --hosts"),
    (("torchrun", ("node1",), None, 2), "starts ranks on this machine"),
    (("ssh", ("node1",), None, 2), "e.g. --rendezvous node1:29500"),
    (("ssh", ("localhost", "node1"), None, 2), "e.g. --rendezvous node1:29500"),
    (("srun", (), None, 2), "e.g. --rendezvous node1:29500"),
    (("ssh", ("a", "b", "c"), "a:1", 2), "names 3 machines for 2 ranks"),
    (("ssh", ("-oProxyCommand=x",), "a:1", 2), "is no name of a machine"),
    (("ssh", ("a", ""), "a:1", 2), "is no name of a machine"),
    *(
        ((("ssh", ("a",), text, 2)), "write HOST:PORT")
        for text in ("a", "a:", ":1", "a:0", "a:65536", "a b:1", "::1:1")
    ),
]


@pytest.mark.parametrize(("asked", "says"), REFUSED)
def test_what_cannot_be_started_is_refused(asked, says):
    with pytest.raises(UsageError, match=says):
        launch(*asked)


def test_what_no_run_can_have_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    asked = {"task": "train", "ranks": 2, "rendezvous": "node1:29500"}
    with pytest.raises(UsageError, match="--launcher srun: this program is not installed here"):
        resolve("mlp", ["numpy"], RunSettings(**asked, launcher="srun"))
    with pytest.raises(UsageError, match="--pin is not supported with --launcher"):
        resolve("mlp", ["numpy"], RunSettings(**asked, launcher="torchrun", pin=(0,)))
    with pytest.raises(
        UsageError, match="--warmup says how subjects are timed, and the processes of --launcher are not"
    ):
        resolve("mlp", ["numpy"], RunSettings(**asked, launcher="torchrun", warmup=3))


def test_machines_get_ranks_in_their_order():
    found = launch("ssh", ("a", "me@b"), "[::1]:7", 5)
    assert [found.host(rank, 5) for rank in range(5)] == ["a", "a", "a", "me@b", "me@b"]
    assert (found.meeting, found.says()) == ("tcp://[::1]:7", ", started by ssh on a, me@b")
    assert launch("ssh", ("localhost", "me@127.0.0.1"), None, 2).address == ""
    asked, _ = resolve("mlp", ["numpy"], RunSettings(task="train", ranks=4, launcher="torchrun"))
    assert asked.divided.says() == "4 ranks, plan ddp, 8 + 8 + 8 + 8 items, started by torchrun"
    assert [each.processes for each in subjects_of(replace(asked, subjects=("torch:eager",)))] == [4]
    assert asked.no_timing, "the processes of a launcher are not timed"


def test_a_free_port_is_found():
    address = launch("torchrun", (), None, 2).at_an_address().address
    with socket.socket() as one:
        one.bind(("127.0.0.1", int(address.removeprefix("127.0.0.1:"))))


def test_the_commands_of_the_launchers():
    def words(kind, *more):
        return Place(Launch((kind, *more), ("me@n1", "n2"), "n1:29500"), 1, 2, 20).arguments(WORKER, "/a b", VARIABLES)

    agent = words("torchrun", "--log-dir=x")
    assert agent[0] == WORKER[0]
    assert agent[-3:] == list(WORKER)
    assert shlex.join(agent[3:-3]) == (
        "--log-dir=x --nnodes 2 --nproc-per-node 1 --node-rank 1 --master-addr n1 --master-port 29500 --rdzv-conf timeout=10 "
        "--no-python"
    )
    assert shlex.join(words("/x/srun", "-c4")[:-3]) == (
        "/x/srun -c4 --ntasks=1 --nodes=1 --exact --export=ALL --nodelist=n2"
    )
    of_ssh = words("ssh", "-p", "2222")
    assert of_ssh[:3] == ["ssh", "-p", "2222"]
    assert of_ssh[-2] == "n2"
    assert "BatchMode=yes" in of_ssh
    shell = shlex.split(of_ssh[-1])
    assert shell[:2] == ["sh", "-c"]
    assert shlex.split(shell[2])[-7:] == [
        *VARIABLES_OF_SSH,
        *WORKER[:2],
        f"{WORKER[2]};",
        "exit",
        "$?",
    ]
    assert "secret" not in of_ssh[-1]


VARIABLES_OF_SSH = ("OMP_NUM_THREADS=1", "TMPDIR=/shared/a b")


def test_ssh_carries_all_that_is_set_for_a_worker(monkeypatch, tmp_path):
    from xverify.framework.discovery import load

    monkeypatch.setattr(os, "environ", {})
    command = worker_command(load("torch"), tmp_path, 2, "cpu", "/another/python", patient=True)
    words = Place(Launch(("ssh",), ("n",), "n:1"), 0, 2, 20).arguments(WORKER, "/", command.environment)
    assert command.environment
    for name in command.environment:
        assert f"{name}=" in words[-1], name


ENDS = [
    ("ssh", 137, "", "killed by SIGKILL while training"),
    ("ssh", 137, "a warning\nKilled\n", "killed by SIGKILL while training; its last line: a warning"),
    ("srun", 134, "srun: error: n1: task 0: Aborted (core dumped)\n", "killed by SIGABRT while training"),
    ("ssh", 255, "ssh: no route\n", "exited with status 255 while training; its last line: ssh: no route"),
    (
        "torchrun", 1, "out\nE1 2 api.py] failed (exitcode: -9) local_rank: 0\nTraceback\n====\n",
        "killed by SIGKILL while training; its last line: out",
    ),
    ("torchrun", 1, "failed (exitcode: 3) local\n===\n", "exited with status 3 while training"),
    ("torchrun", 1, "x.DistNetworkError: EADDRINUSE\n", unmet("n:1", "EADDRINUSE")),
    ("torchrun", 1, "x.DistNetworkError: timed out\n", unmet("n:1", "")),
    ("torchrun", -9, "", "killed by SIGKILL while training"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "code", "log", "says"), ENDS)
def test_an_end_is_told_as_that_of_the_worker(kind, code, log, says, tmp_path):
    (tmp_path / "log").write_text(log)
    error = Place(Launch((kind,), (), "n:1"), 1, 2, 20).crashed(code, "training", Log(tmp_path / "log"))
    assert str(error) == says


def test_a_rank_that_does_not_see_its_folder_says_so(tmp_path):
    with pytest.raises(
        Failed, match=r"does not see .*/absent: set TMPDIR to a folder on a file system that all machines"
    ):
        Session().ask(JoinRanks(0, 2, "ddp", "tcp://127.0.0.1:1", 1.0, (0.5, 0.5), str(tmp_path / "absent")))


@pytest.mark.skipif(os.name != "posix", reason="no poll")
@pytest.mark.parametrize("kind", ["pipe", "socket"])  # sshd gives a process the one or the other
def test_a_worker_ends_with_its_input_while_it_computes(kind, tmp_path):
    code = (
        "import time; from xverify.messages import lifeline; lifeline.watch(); print('up', flush=True); time.sleep(60)"
    )
    if kind == "socket":
        one, other = socket.socketpair()
        ours, theirs = one.detach(), other.detach()
    else:
        theirs, ours = os.pipe()
    worker = subprocess.Popen(
        [sys.executable, "-c", code], stdin=theirs, stdout=subprocess.PIPE, env={**os.environ, lifeline.VARIABLE: lifeline.INPUT},
        cwd=Path(__file__).parents[2],
    )  # fmt: skip
    try:
        assert worker.stdout.readline() == b"up\n"
        os.write(ours, b"unread\n")
        time.sleep(0.2)
        assert worker.poll() is None
        os.close(ours)
        assert worker.wait(10) == -signal.SIGKILL
    finally:
        os.close(theirs)
        worker.kill()
        worker.communicate()
