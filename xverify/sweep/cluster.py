"""Runs the cells of a sweep on a Dask cluster: each alone on its machine, and again elsewhere when its machine is lost.

A worker never has more cells than it runs, so the loss of a machine concerns one cell. Cells run in processes of their own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import platform
import re
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import installed
from ..errors import UsageError, XverifyError, first_line
from ..processes.space import deferred_signals, temporary_folder
from ..results import file as result_file
from . import machines
from .alone import end_all, run_alone
from .cell import CRASHED, failed, has_crashed
from .matrix import Cell
from .planning import Planned, plan
from .run import Durations, Swept, Watcher, to_run
from .sharing import RESULTS, Place, Sent, fetch, send
from .store import Store

if TYPE_CHECKING:
    from distributed import Client, Future

CONNECT_SECONDS = 15
START_SECONDS = 600  # that the machines of a new cluster may take: a queue of Slurm may be long
APPEAR_SECONDS = 30  # until a file that another machine wrote is seen in a shared folder
SIZE_SECONDS = 1.0  # between two questions for the number of workers
COUNT = re.compile("[1-9][0-9]{0,3}")  # of workers
PLANNED_AT_ONCE = 200  # cells in one request to a worker
RunOne = Callable[[Planned, Path], None]


@dataclass(frozen=True)
class Ran:
    """What a worker says of a cell that it has run.

    machine: its name. problem: why there is no result; "" when there is one.
    """

    machine: str
    seconds: float
    problem: str = ""


# -- connection -------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def connected(scheduler: str | None, kind: str | None, retries: int) -> Iterator[Client]:
    """A client of the scheduler at an address, or of a new cluster: "local:2", "ssh:HOST,HOST", "slurm:8". Raises UsageError.

    retries: how often a cell that loses its machine is tried again. A scheduler that was there before has a number of its own.
    """
    try:
        import dask
        from distributed import Client
    except ModuleNotFoundError:
        raise UsageError(f"a sweep on a cluster needs Dask: {installed.extra('cluster')}") from None
    dask.config.set(
        {"distributed.scheduler.allowed-failures": retries, "distributed.comm.timeouts.connect": CONNECT_SECONDS}
    )
    with contextlib.ExitStack() as stack:
        if scheduler is not None:
            target: Any = scheduler
        else:
            if (kind or "").startswith("local"):  # Dask writes into the current folder otherwise
                dask.config.set({"temporary-directory": str(stack.enter_context(temporary_folder()))})
            target, count = _cluster(kind or "")
            stack.callback(target.close)
            stack.callback(end_all)  # those of a local cluster, whose workers would wait for them
        try:
            client = stack.enter_context(Client(target, timeout=CONNECT_SECONDS, set_as_default=False))
        except (OSError, ValueError, asyncio.TimeoutError) as error:
            raise UsageError(
                f"no scheduler of Dask answers at {scheduler}: {first_line(error)}; start one with dask scheduler"
            ) from None
        if scheduler is None:
            try:
                client.wait_for_workers(count, timeout=START_SECONDS)
            except asyncio.TimeoutError:
                if not client.scheduler_info(n_workers=-1)["workers"]:
                    raise UsageError(f"--cluster {kind}: no worker has started within {START_SECONDS} s") from None
        yield client


def _cluster(kind: str) -> tuple[Any, int]:
    """(a new cluster, the number of its workers). Any: a cluster of Dask or of one of its launchers."""
    name, _, value = kind.partition(":")
    resources = {machines.RESOURCE: 1}
    if name == "ssh":
        from distributed import SSHCluster

        hosts = [each for each in value.split(",") if each]
        if not hosts:
            raise UsageError("--cluster ssh: name the machines, e.g. ssh:node1,node2")
        _require("asyncssh", "ssh")
        # The first name is where the scheduler runs.
        return SSHCluster([hosts[0], *hosts], worker_options={"nthreads": 1, "resources": resources}), len(hosts)
    if name not in ("local", "slurm") or not COUNT.fullmatch(value):
        raise UsageError(f"--cluster {kind}: write local:2, slurm:8 or ssh:node1,node2, with at most 9999 workers")
    if name == "slurm":
        _require("dask_jobqueue", "slurm")
        import dask
        from dask_jobqueue import SLURMCluster

        # A job begins in the folder of the command. An older Python than 3.11 does not know this variable. Slurm itself gives a job
        # the other variables: none of their values stands in its script.
        first = [*(dask.config.get("jobqueue.slurm.job-script-prologue", None) or []), "export PYTHONSAFEPATH=1"]
        options = ["--resources", f"{machines.RESOURCE}=1", "--nthreads", "1"]
        made = SLURMCluster(processes=1, worker_extra_args=options, job_script_prologue=first)
        made.scale(jobs=int(value))
        return made, int(value)
    return _threads(int(value)), int(value)


def _threads(count: int) -> Any:
    """A cluster within this process. A cell has a process all the same, and nothing listens where another user could send code."""
    from distributed import Scheduler, SpecCluster, Worker

    def silent(
        cls: type,
    ) -> type:  # Dask starts a server of pages in each, on port 8787 and others, whatever it is told
        return type(cls.__name__, (cls,), {"start_http_server": lambda self, *args, **kwargs: None})

    place = {"protocol": "inproc://", "dashboard": False}
    # memory_limit: each worker would take the memory of this process for its own, and pause.
    options = place | {"nthreads": 1, "resources": {machines.RESOURCE: 1}, "memory_limit": 0}
    with deferred_signals():  # one that is half started cannot be ended
        return SpecCluster(
            scheduler={"cls": silent(Scheduler), "options": place},
            workers={index: {"cls": silent(Worker), "options": options} for index in range(count)},
            silence_logs=logging.CRITICAL,  # whatever ends a cell is in its result
        )


def _require(module: str, kind: str) -> None:
    import importlib.util

    if importlib.util.find_spec(module) is None:
        raise UsageError(f"--cluster {kind} needs {module.replace('_', '-')}: pip install {module.replace('_', '-')}")


def surveyed(client: Client) -> dict[str, machines.Machine]:
    """Address of each worker -> what it says of itself. Raises UsageError when a worker has no xverify."""
    try:
        return dict(client.run(machines.describe))
    except Exception as error:  # whatever a worker raises when it cannot import xverify
        raise UsageError(
            f"a worker cannot run xverify: {first_line(error)}; install xverify on every machine"
        ) from None


def announced(client: Client) -> dict[str, dict[str, float]]:
    """Address of each worker -> the resources that it announces."""
    return {address: each["resources"] for address, each in client.scheduler_info(n_workers=-1)["workers"].items()}


class Size:
    """The number of workers of a cluster: some may go, and others come. It is asked for once in a while."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.known, self.asked = 0, -math.inf

    def now(self) -> int:
        """The number as it was at most SIZE_SECONDS ago."""
        if time.monotonic() - self.asked > SIZE_SECONDS:
            self.known, self.asked = len(self.client.nthreads()), time.monotonic()
        return self.known


# -- planning ---------------------------------------------------------------------------------------------------------


class Cluster:
    """A cluster that was found fit for a sweep. Raises UsageError when it is not.

    share: a folder or URL by which files travel; None: every machine sees the folder of results, and the folders of models.
    """

    def __init__(self, client: Client, store: Store, share: str | None = None) -> None:
        self.client, self.store, self.size = client, store, Size(client)
        machines.check(surveyed(client), announced(client))
        self.place = Place(share) if share is not None else None
        self.known: dict[tuple[str, str], Sent] = {}  # model and weights -> as they were sent
        if self.place is None:
            self._check_folder()

    def _check_folder(self) -> None:
        folder = self.store.folder.resolve()
        with tempfile.NamedTemporaryFile(prefix=".xverify-", dir=folder) as token:
            seen = self.client.run(machines.sees, str(folder), Path(token.name).name)
        for address, sees in seen.items():
            if not sees:
                raise UsageError(
                    f"the worker {address} does not see {folder}: name a folder that all machines share with --results, or a place "
                    "by which files travel with --share"
                )

    def plan(self, cells: Sequence[Cell]) -> list[Planned | str]:
        """Each cell as it will run on a worker, or why it cannot."""
        found: list[Planned | str] = []
        sent = [self._sent(cell) for cell in cells]
        for first in range(0, len(cells), PLANNED_AT_ONCE):
            part = sent[first : first + PLANNED_AT_ONCE]
            found += self.client.submit(plan_there, part, self.place and self.place.url, pure=False).result()
        return found

    def _sent(self, cell: Cell) -> Sent:
        """The cell with its files at the place, where there is one. Each file is sent once."""
        if self.place is None:
            return Sent(cell)
        files = (cell.model, str(cell.settings.weights))
        if files not in self.known:
            self.known[files] = send(cell, self.place)
        return replace(self.known[files], cell=cell)

    def sweep(
        self,
        cells: Sequence[Planned],
        *,
        force: bool = False,
        retries: int = 1,
        watcher: Watcher | None = None,
        run_one: RunOne = run_alone,
    ) -> Swept:
        """Run every cell whose result is missing, as ``run.sweep`` does. run_one: runs a cell on its worker."""
        watcher = watcher or Watcher()
        left = to_run(cells, self.store, force, watcher)
        watcher.known(len(cells) - len(left), len(left))
        ran = 0
        for _ in range(retries + 1):
            again = []
            for planned, crashed in self._run_all(left, watcher, run_one):
                ran += 1
                if crashed:
                    again.append(planned)
            left = again
        return Swept(ran)

    # -- running ------------------------------------------------------------------------------------------------------

    def _run_all(self, cells: Sequence[Planned], watcher: Watcher, run_one: RunOne) -> Iterator[tuple[Planned, bool]]:
        """Run these cells. Yields each with whether a process of it crashed, in the order in which they end."""
        from distributed import as_completed

        durations = Durations(cells)
        waiting = deque(enumerate(cells, 1))
        running: dict[Any, Planned] = {}  # key of a future -> its cell
        arriving = as_completed(loop=self.client.loop)

        def send_next() -> None:
            number, planned = waiting.popleft()
            seconds = durations.left()
            watcher.sent(
                planned, f"{number} of {len(cells)}", None if seconds is None else seconds / max(1, self.size.now())
            )
            future = self.client.submit(
                run_there, self._sent(planned.cell), planned, str(self.store.folder.resolve()),
                self.place and self.place.url, run_one, resources={machines.RESOURCE: 1}, pure=False,
            )  # fmt: skip
            running[future.key] = planned
            arriving.add(future)

        while waiting and len(running) < max(1, self.size.now()):
            send_next()
        for future in arriving:
            planned = running.pop(future.key)
            done = self._taken(planned, future)
            result = self.store.result(planned)
            durations.ended(planned, done.seconds)
            if result is not None:
                watcher.ran(planned, result, done.seconds, done.machine)
            yield planned, result is not None and has_crashed(result) and not done.problem
            while waiting and len(running) < max(1, self.size.now()):
                send_next()

    def _taken(self, planned: Planned, future: Future[Ran]) -> Ran:
        """What the worker says of a cell that has ended. Its result is in the folder then."""
        from distributed import KilledWorker

        path = self.store.path(planned)
        try:
            done: Ran = future.result()
            if not done.problem:
                self._bring(planned, path)
                return done
        except KilledWorker as error:
            done = Ran("", 0.0, f"every machine that ran it was lost, the last one {error.last_worker}")
            result_file.write(failed(planned, done.problem, CRASHED), path)
            return done
        except Exception as error:  # whatever was raised on the way
            done = Ran("", 0.0, str(error) if isinstance(error, XverifyError) else first_line(error))
        result_file.write(failed(planned, done.problem), path)
        return done

    def _bring(self, planned: Planned, path: Path) -> None:
        """Bring the result to the folder, or wait until a network file system shows it."""
        if self.place is not None:
            self.place.get(path, RESULTS, planned.file)
            return
        deadline = time.monotonic() + APPEAR_SECONDS
        while not path.is_file():
            if time.monotonic() > deadline:
                raise XverifyError(f"its worker wrote {path.name}, and it is not in {path.parent}")
            time.sleep(0.1)


# -- on the worker ----------------------------------------------------------------------------------------------------


def plan_there(cells: Sequence[Sent], url: str | None) -> list[Planned | str]:
    """Plan cells on a worker. url: the place by which files travel; None: all machines share their folders."""
    return plan(_here(each, url) for each in cells)


def run_there(sent: Sent, planned: Planned, folder: str, url: str | None, run_one: RunOne) -> Ran:
    """Run a cell on a worker, and leave its result in the shared folder, or in the place by which files travel."""
    begun, problem = time.monotonic(), ""
    try:
        planned = replace(planned, cell=_here(sent, url))
        if url is None:
            run_one(planned, Path(folder, planned.file))
        else:
            with tempfile.TemporaryDirectory() as own:
                path = Path(own, planned.file)
                run_one(planned, path)
                Place(url).put(path, RESULTS, planned.file)
    except XverifyError as error:  # told to the parent, which makes a row of it
        problem = str(error)
    return Ran(platform.node() or str(os.getpid()), time.monotonic() - begun, problem)


def _here(sent: Sent, url: str | None) -> Cell:
    return fetch(sent, Place(url)) if url is not None else sent.cell
