"""The command of a launcher before that of a worker. The launcher starts the process, and carries its input and output."""

from __future__ import annotations

import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..errors import Crashed
from ..interpreter import module as run_module
from ..workload.launch import Launch, unmet
from .ending import signal_name
from .log import Log

# Beginnings of the names of the variables that ssh writes into the command, which others can read there. All that this process
# sets for a worker are among them. Another process gets the other variables, such as passwords, from its own machine.
CARRIED = (
    "CUDA_", "GLOO_", "NCCL_", "TORCH_", "OMP_", "MKL_", "OPENBLAS_", "KMP_", "MALLOC_", "GLIBC_TUNABLES", "XVERIFY_", "PYTHONPATH",
    "TMPDIR", "LD_LIBRARY_PATH",
)  # fmt: skip
ENDED = re.compile(r"^.*failed \(exitcode: (-?\d+)\)", re.MULTILINE)  # the line with which torchrun begins its report
# Exit status of a shell, and of srun, whose process was killed by a signal: 128 and its number.
SIGNALS = range(129, 193)


@dataclass(frozen=True)
class Place:
    """Where the process of a rank starts.

    launch: the launcher, with an address. rank: the number of the process. count: of all. seconds: that ranks wait for one another.
    """

    launch: Launch
    rank: int
    count: int
    seconds: float

    def arguments(self, worker: Sequence[str], folder: str, variables: Mapping[str, str]) -> list[str]:
        """The command that starts a worker.

        worker: its own command. folder: its current directory. variables: the environment variables of the worker, which the
        launcher gets, too.
        """
        python, first, own = worker[0], self.launch.words[0], self.launch.words[1:]
        host = self.launch.host(self.rank, self.count)
        if self.launch.name == "torchrun":
            # Its torch is that of the worker, whose folder of programs need not be in PATH.
            meet, _, port = self.launch.address.rpartition(":")
            where = ("--node-rank", self.rank, "--master-addr", meet.strip("[]"), "--master-port", port)
            waits = ("--rdzv-conf", f"timeout={int(self.seconds / 2) or 1}")  # torch may try for twice as long
            agent = ("--nnodes", self.count, "--nproc-per-node", 1, *where, *waits, "--no-python")
            return [*run_module(python, "torch.distributed.run", *own, *map(str, agent)), *worker]
        if self.launch.name == "srun":
            step = ("--ntasks=1", "--nodes=1", "--exact", "--export=ALL", *([f"--nodelist={host}"] if host else []))
            return [first, *own, *step, *worker]
        carried = [f"{name}={value}" for name, value in sorted(variables.items()) if name.startswith(CARRIED)]
        # The shell stays, to return the number of a signal, which ssh itself does not.
        script = f"cd {shlex.quote(folder)} 2>/dev/null; {shlex.join(['env', *carried, *worker])}; exit $?"
        options = ("-o", "BatchMode=yes", "-o", f"ConnectTimeout={int(self.seconds) or 1}", "-T")
        return [first, *own, *options, host, shlex.join(["sh", "-c", script])]

    def crashed(self, code: int, doing: str, log: Log) -> Crashed:
        """The error of a process that has ended. code: exit status of the launcher, or minus its signal."""
        text = log.text()
        said = ENDED.search(text) if self.launch.name == "torchrun" else None
        if said is not None:
            code, text = int(said[1]), text[: said.start()]
        elif code in SIGNALS:
            code = 128 - code
        elif "DistNetworkError" in text:  # torchrun meets the others before it starts the worker
            return Crashed(unmet(self.launch.address, text))
        lines = [line.strip() for line in text.splitlines() if line.strip()]
        if code < 0 and lines and (signal.strsignal(-code) or "") in lines[-1]:
            del lines[-1]  # a shell and srun say this, too
        last = f"; its last line: {lines[-1][:200]}" if lines else ""
        how = f"killed by {signal_name(-code)}" if code < 0 else f"exited with status {code}"
        return Crashed(f"{how} while {doing}{last}")
