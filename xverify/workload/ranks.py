"""How a training step is divided among several processes, which are called ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

from ..errors import UsageError
from .launch import Launch

# Plan -> what it does, for reports.
PLANS = {
    "ddp": "every rank has the whole model and a part of the batch",
    "fsdp": "every rank has a part of every parameter and a part of the batch",
    "tp": "every rank has a part of the model and the whole batch",
    "own": "parallelize of the model file, and a part of the batch on every rank",
}
OF_FILES = ("tp", "own")  # plans that the model file makes
ONE_PROCESS = " (one process)"  # ends the label of what is timed beside a subject on ranks


@dataclass(frozen=True)
class Ranks:
    """The ranks of a subject.

    plan: a key of PLANS. count: number of ranks. items: of the batch, on each rank; () where every rank has the whole batch.
    launch: what starts them; None: this process, on this machine.
    """

    plan: str
    count: int
    items: tuple[int, ...] = ()
    launch: Launch | None = None

    @property
    def shares(self) -> tuple[float, ...]:
        """The share of each rank in a mean over the items of the batch."""
        return tuple(each / sum(self.items) for each in self.items) or (1 / self.count,) * self.count

    @property
    def parts(self) -> list[slice]:
        """The items of each rank; none where every rank has the whole batch."""
        return [slice(stop - size, stop) for size, stop in zip(self.items, accumulate(self.items))]

    @property
    def uneven(self) -> bool:
        """Whether ranks have other numbers of items."""
        return len(set(self.items)) > 1

    def says(self) -> str:
        """The ranks in words."""
        items = f", {' + '.join(map(str, self.items))} items" if self.items else ""
        return f"{self.count} ranks, plan {self.plan}{items}{self.launch.says() if self.launch else ''}"


def ranks(count: int | None, plan: str | None, shards: Sequence[int], batch: int) -> Ranks | None:
    """The ranks that a user asks for; None for one process. Raises UsageError.

    batch: number of items. shards: the proportions in which they are divided; () divides them evenly.
    """
    if count is None:
        given = [flag for flag, value in (("--plan", plan), ("--shards", shards)) if value]
        if given:
            raise UsageError(f"{given[0]} belongs to --ranks: name their number, e.g. --ranks 2")
        return None
    plan = plan or "ddp"
    if plan == "tp":
        if shards:
            raise UsageError(
                "--shards divides the batch, and with --plan tp every rank has the whole batch: leave it out"
            )
        return Ranks(plan, count)
    if count > batch:
        raise UsageError(f"--ranks {count}: a batch of {batch} has fewer items than that: name a larger --batch")
    if shards and len(shards) != count:
        raise UsageError(f"--shards {','.join(map(str, shards))} has {len(shards)} numbers for {count} ranks")
    proportions = tuple(shards) or (1,) * count
    unit, rest = divmod(batch, sum(proportions))
    if rest:
        what = f"--shards {','.join(map(str, shards))}" if shards else f"--ranks {count}"
        raise UsageError(
            f"{what}: a batch of {batch} cannot be divided so: name a --batch that {sum(proportions)} divides"
            + ("" if shards else ", or other proportions with --shards")
        )
    return Ranks(plan, count, tuple(unit * each for each in proportions))


def rank_file(path: str | Path, rank: int) -> Path:
    """The file of what one of several devices of a process has. path: that of the first one."""
    return shard_file(path, rank) if rank else Path(path)


def shard_file(path: str | Path, rank: int) -> Path:
    """The file of a rank's part of the batches in a file."""
    path = Path(path)
    return path.with_name(f"{path.stem}-rank-{rank}{path.suffix}")
