"""What starts ranks on the machines of a cluster: a launcher, the machines, and the address at which the ranks meet."""

from __future__ import annotations

import platform
import re
import shlex
import socket
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..errors import Failed, UsageError

LAUNCHERS = ("torchrun", "srun", "ssh")
HERE = ("localhost", "127.0.0.1", "[::1]")  # names of this machine on every machine
HOST = re.compile(r"[A-Za-z0-9_\[][A-Za-z0-9_.:@%\[\]-]*")  # no option of ssh or srun begins so
ADDRESS = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[A-Za-z0-9_][A-Za-z0-9_.-]*):([0-9]{1,5})")


@dataclass(frozen=True)
class Launch:
    """How ranks are started.

    words: the launcher and its options. hosts: the machines, each of which gets the same number of ranks or one more; () where the
        launcher chooses them.
    address: where the ranks meet, "HOST:PORT"; "" for a free port of this machine.
    """

    words: tuple[str, ...]
    hosts: tuple[str, ...] = ()
    address: str = ""

    @property
    def name(self) -> str:
        """The launcher, one of LAUNCHERS."""
        return Path(self.words[0]).name

    @property
    def here(self) -> bool:
        """Whether it starts processes as children of this process, on this machine."""
        return self.name == "torchrun"

    @property
    def meeting(self) -> str:
        """Where the ranks meet, as torch.distributed writes it. torchrun tells it in environment variables."""
        return "env://" if self.name == "torchrun" else f"tcp://{self.address}"

    def host(self, rank: int, count: int) -> str:
        """The machine of a rank, of so many; "" where the launcher chooses it."""
        return self.hosts[rank * len(self.hosts) // count] if self.hosts else ""

    def at_an_address(self) -> Launch:
        """The same with an address: a free port of this machine where the user gave none."""
        if self.address:
            return self
        with socket.socket() as found:
            found.bind(("127.0.0.1", 0))
            return replace(self, address=f"127.0.0.1:{found.getsockname()[1]}")

    def says(self) -> str:
        """The launcher in words."""
        return f", started by {self.name}" + (f" on {', '.join(dict.fromkeys(self.hosts))}" if self.hosts else "")


def launch(launcher: str | None, hosts: Sequence[str], rendezvous: str | None, ranks: int | None) -> Launch | None:
    """The launcher that a user asks for; None for processes of this machine. Raises UsageError."""
    if launcher is None:
        given = [flag for flag, value in (("--hosts", hosts), ("--rendezvous", rendezvous)) if value]
        if given:
            raise UsageError(f"{given[0]} belongs to --launcher: name one of {', '.join(LAUNCHERS)}")
        return None
    if ranks is None:
        raise UsageError("--launcher belongs to --ranks: name their number, e.g. --ranks 2")
    found = Launch(_words(launcher), tuple(hosts), _address(rendezvous))
    odd = next((each for each in hosts if not HOST.fullmatch(each)), None)
    if odd is not None:
        raise UsageError(f"--hosts: {odd!r} is no name of a machine; write e.g. --hosts node1,node2")
    if found.name == "ssh" and not hosts:
        raise UsageError("--launcher ssh needs the machines: name them with --hosts, e.g. --hosts node1,node2")
    if found.name == "torchrun" and hosts:
        raise UsageError("--launcher torchrun starts ranks on this machine: leave --hosts out, or take ssh or srun")
    if len(hosts) > ranks:
        raise UsageError(f"--hosts names {len(hosts)} machines for {ranks} ranks: name at most {ranks}")
    mine = (*HERE, platform.node())
    if not rendezvous and not (found.here or (hosts and all(each.rpartition("@")[2] in mine for each in hosts))):
        raise UsageError(
            f"--launcher {found.name} needs an address at which the ranks meet: name the machine of rank 0 and a free port of it, "
            "e.g. --rendezvous node1:29500"
        )
    return found


def _words(text: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        raise UsageError(f"--launcher {text}: {str(error).lower()}") from None
    if not words or Path(words[0]).name not in LAUNCHERS or (words[0] != "torchrun" == Path(words[0]).name):
        raise UsageError(
            f"--launcher {text}: write {', '.join(LAUNCHERS[:-1])} or {LAUNCHERS[-1]}, with its options, e.g. 'ssh -p 2222'"
        )
    return words


def _address(text: str | None) -> str:
    if text is None:
        return ""
    found = ADDRESS.fullmatch(text)
    if found is None or not 0 < int(found[2]) < 2**16:
        raise UsageError(f"--rendezvous {text}: write HOST:PORT with a port from 1 to 65535, e.g. node1:29500")
    return text


def look_up(address: str) -> None:
    """Raise Failed where this machine does not know the name in an address "HOST:PORT". torch would try it again and again."""
    try:
        socket.getaddrinfo(address.rpartition(":")[0].strip("[]"), None)
    except OSError as error:
        raise Failed(f"{platform.node()} does not know the rendezvous {address}: {error.strerror}") from None


def unmet(address: str, why: str) -> str:
    """Why ranks did not meet. address: "HOST:PORT". why: what torch says of it."""
    if "EADDRINUSE" in why:
        port = address.rpartition(":")[2]
        return f"port {port} of the rendezvous {address} is in use: end the program that has it, or name another --rendezvous"
    return (
        f"the rendezvous {address} was not reached in time: name an address of the machine of rank 0 that all ranks reach with "
        "--rendezvous HOST:PORT"
    )
