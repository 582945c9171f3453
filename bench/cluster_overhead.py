"""What a Dask cluster adds to a cell of a sweep: a simulation, in which a cell does nothing but write a result.

python bench/cluster_overhead.py [--cells 10000] [--machines 50]

The machines are workers of Dask in this process, which listen on 127.0.0.1 only. The exit code is 1 when a result is missing, or
when a cell takes more than 20 ms longer than the fake run itself.
"""

from __future__ import annotations

import argparse
import logging
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

from distributed import Client, LocalCluster

from xverify.results import file as result_file
from xverify.sweep import matrix, planning
from xverify.sweep.cell import failed
from xverify.sweep.cluster import Cluster
from xverify.sweep.machines import RESOURCE
from xverify.sweep.planning import Planned
from xverify.sweep.store import State, Store

MOST = 0.020  # seconds a cell


def fake(planned: Planned, path: Path) -> None:
    """Write a result of the same form as that of a run."""
    result_file.write(failed(planned, "simulated"), path)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cells", type=int, default=10_000)
    parser.add_argument("--machines", type=int, default=50)
    args = parser.parse_args()
    cells = matrix.combined({"model": ["mlp"], "seed": list(range(args.cells))}, {"subjects": ("torch:eager",)})
    logging.getLogger("distributed").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        with (
            LocalCluster(
                n_workers=args.machines,
                threads_per_worker=1,
                processes=False,
                protocol="tcp",
                host="127.0.0.1",
                dashboard_address=None,
                memory_limit=0,  # else each machine takes the memory of this process for its own, and pauses
                resources={RESOURCE: 1},
            ) as workers,
            Client(workers, set_as_default=False) as client,
        ):
            cluster = Cluster(client, store)
            begun = time.perf_counter()
            planned = planning.checked(cells, cluster.plan(cells))
            planned_at = time.perf_counter()
            cluster.sweep(planned, run_one=fake)
            ended = time.perf_counter()
        there = sum(store.state(each) == State.DONE for each in planned)
        alone = seconds_alone(planned[: min(200, len(planned))], store)
    each = (ended - begun) / args.cells
    print(f"{args.cells} cells on {args.machines} machines: {there} results; {1000 * each:.1f} ms a cell, of which")
    print(f"  planning: {1000 * (planned_at - begun) / args.cells:.1f} ms")
    writing = f"{1000 * alone:.1f} ms of them to write the result, measured alone"
    print(f"  running:  {1000 * (ended - planned_at) / args.cells:.1f} ms ({writing})")
    return 0 if there == args.cells and each - alone <= MOST else 1


def seconds_alone(planned: list[Planned], store: Store) -> float:
    """The seconds that the fake run of one cell takes by itself."""
    begun = time.perf_counter()
    for each in planned:
        fake(replace(each, key=f"alone{each.key}"), store.folder / "alone.json")
    return (time.perf_counter() - begun) / len(planned)


if __name__ == "__main__":
    sys.exit(main())
