"""Injects faults: the command must survive each, answer in time and in one line, and leave nothing behind.

python suites/faults.py [--part PART] [--files N] [--minutes M] [--jobs 2] [--seed S] [--only PATTERN]

harm: model files that are made to harm, each by the command line: see hostile.py.
mutated: mutated model files of every format, and of files with code that are refused without --trust. Each has a whole check.
processes: processes that crash, hang, stay or break the protocol, in every phase of a run: see process_faults.py.
weights: mutated weight files of every format, and those of hostile_weights.py.
results: mutated result files, read by `explain`, `diff`, `report`, `history` and `--resume`: see hostile_results.py.
folders: model folders that end the program, cannot be read or shadow modules, by the command line: see hostile_folders.py.
texts: every text of a result, and names, with hostile texts in every format: see case_texts.py.
places: every file that a command reads with a pipe, a device, a folder, ... in its place: see case_places.py.
outputs: every option that names an output with every file that the command reads: see case_outputs.py.
records: every field of every record with an unusable value: see case_records.py.

Every process that reads a file has a limit of memory (--gib), so that a file cannot take the memory of the machine. The exit code
is 1 when anything was wrong: a parent crashed or hung, a message had more than one line, a file was executed, an exit code or a
row was another one, or a process or a folder was left.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import case_outputs
import case_places
import case_records
import case_texts
import cases
import hostile_folders
import hostile_results
import processes
import psutil
import scenes
import seeds
import weight_files
from seeds import Seed
from tables import table

from xverify.host import kill_group

SUITES = Path(__file__).parent
HANG = 240.0  # seconds without an answer; each step of one check may take mutants.STEP
STATUSES = ("refused", "failed", "unsupported", "crashed", "timeout")
HARM, MUTATED, PROCESSES, WEIGHTS = "harm", "mutated", "processes", "weights"
RESULTS, FOLDERS = "results", "folders"
OUTPUTS, PLACES, TEXTS, RECORDS = "outputs", "places", "texts", "records"
MOST = {
    MUTATED: 10_000,
    WEIGHTS: 4_000,
    RESULTS: 2_000,
    FOLDERS: 1_000,
    OUTPUTS: 2_500,
    PLACES: 600,
    TEXTS: 1_500,
    RECORDS: 1_500,
}  # files of a part, unless --files says otherwise
TRIED = ("tried", "right", "WRONG")
COLUMNS = ("files", *STATUSES, "judged", "WRONG")


@dataclass
class Mutated:
    """The mutated files of one seed. deadline: no file is begun after it."""

    seed: Seed
    total: int
    deadline: float = 0.0
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    slowest: float = 0.0

    def count(self, number: int, became: str, why: str, seconds: float) -> None:
        """Take the answer to one file."""
        self.counts.update(("files", became if became in STATUSES else "judged"))
        self.slowest = max(self.slowest, seconds)
        if "\n" in why.strip() or (became in STATUSES and not why.strip()):
            self.accuse(number, f"its message is not one line: {why!r}")
        written = os.listdir(self.seed.trap)
        if written:
            self.accuse(number, f"it was executed: it wrote {written}")
            for name in written:
                (self.seed.trap / name).unlink()

    def accuse(self, number: int, why: str) -> None:
        """Report a fault of xverify."""
        self.counts["WRONG"] += 1
        self.wrong.append(f"{self.seed.name}, file {number}: {why}")
        print(self.wrong[-1], flush=True)

    def run(self, seed: str, gib: float) -> None:
        """Check the files. A process that ends or hangs is reported, and another one goes on behind that file."""
        number = 0
        while number < self.total and time.monotonic() < self.deadline:
            with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
                arguments = [self.seed.path, folder, number, self.total, seed, gib, self.seed.on]
                process = _start([SUITES / "mutants.py", *arguments], folder)
                try:
                    for answer in _answers(process):
                        if isinstance(answer, str):
                            self.accuse(number, answer)
                            self.counts.update(("files",))
                            number += 1
                            break
                        number, became, why, seconds = answer
                        self.count(number, became, why, seconds)
                        number += 1
                        if time.monotonic() >= self.deadline:
                            break
                finally:
                    _end(process)


def _in_thread(pipe: Iterable[str], take: Callable[[str], Any]) -> threading.Thread:
    """Give every line of a pipe to a function, and "" at its end."""

    def read() -> None:
        for line in pipe:
            take(line)
        take("")

    thread = threading.Thread(target=read, daemon=True)
    thread.start()
    return thread


def _end(process: subprocess.Popen[str]) -> None:
    """End a process and its workers, which are in sessions of their own."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
    except psutil.Error:
        children = []
    kill_group(process)
    process.wait()
    for child in children:
        try:
            child.kill()
        except psutil.Error:
            continue


def run_hostile(only: str, gib: float) -> tuple[Counter[str], list[str]]:
    """Give every hostile file to the command line. A process that ends or hangs is reported, and another one goes on."""
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    number, total = 0, 1

    def accuse(name: str, why: str) -> None:
        counts["WRONG"] += 1
        wrong.append(f"{name}: {why}")
        print(f"WRONG {name}: {why!r}", flush=True)

    while number < total:
        with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
            process = _start([SUITES / "springs.py", folder, only, number, gib], folder)
            try:
                for line in _answers(process):
                    if isinstance(line, str):
                        accuse(f"hostile file {number}", line)
                        counts.update(("files",))
                        number += 1
                        break
                    if isinstance(line, int):
                        total = line
                        continue
                    number, became, said, seconds, name, fault = line
                    counts.update(("files", became))
                    text = f"{'WRONG' if fault else 'right'} {seconds:5.1f} s  {name}: {became}: {said[:160]}"
                    print(text.encode(errors="backslashreplace").decode(), flush=True)
                    if fault:
                        accuse(name, fault)
                    number += 1
            finally:
                _end(process)
    return counts, wrong


def _start(arguments: Sequence[Any], folder: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        cwd=folder,
    )


def _answers(process: subprocess.Popen[str]) -> Iterator[Any]:
    """The JSON values that a process prints. A text at the end says why it ended early or was given up."""
    assert process.stdout is not None
    assert process.stderr is not None
    lines: queue.Queue[str] = queue.Queue()
    errors: list[str] = []
    _in_thread(process.stdout, lines.put)
    reader = _in_thread(process.stderr, errors.append)
    while True:
        try:
            line = lines.get(timeout=HANG)
        except queue.Empty:
            yield f"no answer within {HANG:g} s"
            return
        if not line:
            code = process.wait()
            reader.join(5)
            if code:
                last = next((text.strip() for text in reversed(errors) if text.strip()), "")
                yield f"the parent ended with {code}: {last}"
            return
        yield json.loads(line)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--files", type=int, help=f"number of mutated files, results or folders (default: {MOST})")
    parser.add_argument(
        "--minutes", type=float, default=120.0, help="end after so long, with fewer files (default: %(default)s)"
    )
    parser.add_argument("--jobs", type=int, default=2, help="files at a time (default: %(default)s)")
    parser.add_argument("--seed", default="0", help="seed of the mutations (default: %(default)s)")
    parser.add_argument("--gib", type=float, default=12.0, help="memory of one process, GiB (default: %(default)s)")
    parser.add_argument(
        "--every", type=int, default=1, metavar="N", help="only every N-th process and hostile weight file"
    )
    parser.add_argument("--part", choices=tuple(PARTS), help="only this part; see the text above")
    parser.add_argument("--only", default="*", help="a pattern of names of files")
    return parser.parse_args()


Found = tuple[dict[str, Counter[str]], list[str]]  # name -> counts, and what went wrong


def part_harm(asked: argparse.Namespace) -> Found:
    """Model files that are made to harm."""
    counts, wrong = run_hostile(asked.only, asked.gib)
    return {"made to harm": counts}, wrong


def part_mutated(asked: argparse.Namespace) -> Found:
    """Mutated model files. They end early when --minutes are over."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        made = seeds.make_all(Path(folder), asked.only)
        files = asked.files or MOST[MUTATED]
        formats = [Mutated(seed, files // len(made) + (index < files % len(made))) for index, seed in enumerate(made)]
        left = max(0.0, asked.minutes * 60 - (time.monotonic() - begun))
        share = left * asked.jobs / max(1, len(formats))  # seconds of each

        def run(each: Mutated) -> None:
            each.deadline = time.monotonic() + share
            each.run(asked.seed, asked.gib)

        with ThreadPoolExecutor(asked.jobs) as pool:
            list(pool.map(run, formats))
    return {each.seed.name: each.counts for each in formats}, [text for each in formats for text in each.wrong]


def part_processes(asked: argparse.Namespace) -> Found:
    """Faults of processes."""
    counts, wrong = processes.run(asked.only, asked.every, asked.jobs)
    return {PROCESSES: counts}, wrong


def part_weights(asked: argparse.Namespace) -> Found:
    """Weight files."""
    return weight_files.run(asked.files or MOST[WEIGHTS], asked.every, asked.jobs, asked.seed)


def part_results(asked: argparse.Namespace) -> Found:
    """Result files."""
    return hostile_results.run(asked.files or MOST[RESULTS], asked.seed)


def part_folders(asked: argparse.Namespace) -> Found:
    """Model folders."""
    return hostile_folders.run(asked.files or MOST[FOLDERS], asked.jobs)


def part_generated(
    asked: argparse.Namespace,
    part: str,
    generate: Callable[[list[scenes.Scene], Path], Iterable[cases.Case]],
    traced: bool,
) -> Found:
    """Generated cases, or so many of them. traced: whether they need to know what each command reads."""
    most = asked.files or MOST[part]
    with tempfile.TemporaryDirectory(prefix="faults-") as name:
        folder = Path(name)
        scenes.make(folder, asked.only)
        known = scenes.all_scenes(folder, asked.only) if traced else []
        made = list(generate(known, folder))
        print(f"{len(made)} cases, of which {min(most, len(made))} are run")
        return cases.run(cases.sample(made, most, asked.seed), asked.jobs)


# Name -> what runs the part, and the columns of its table.
PARTS: dict[str, tuple[Callable[[argparse.Namespace], Found], Sequence[str]]] = {
    HARM: (part_harm, COLUMNS),
    MUTATED: (part_mutated, COLUMNS),
    PROCESSES: (part_processes, processes.COLUMNS),
    WEIGHTS: (part_weights, (*processes.COLUMNS, "refused", "read", "ended its process")),
    RESULTS: (part_results, TRIED),
    FOLDERS: (part_folders, TRIED),
    OUTPUTS: (partial(part_generated, part=OUTPUTS, generate=case_outputs.generate, traced=True), TRIED),
    PLACES: (partial(part_generated, part=PLACES, generate=case_places.generate, traced=True), TRIED),
    TEXTS: (partial(part_generated, part=TEXTS, generate=case_texts.generate, traced=False), TRIED),
    RECORDS: (partial(part_generated, part=RECORDS, generate=case_records.generate, traced=False), TRIED),
}


def main() -> int:
    asked, begun, wrong = parse(), time.monotonic(), list[str]()
    for name in (asked.part,) if asked.part else PARTS:
        run, columns = PARTS[name]
        rows, more = run(asked)
        print(f"{name}:\n{table(rows, columns, 'what')}", flush=True)
        for text in more:
            print(f"WRONG {text}".encode(errors="backslashreplace").decode(), flush=True)
        wrong += more
    print(f"{'FAIL' if wrong else 'PASS'}: {len(wrong)} wrong; {time.monotonic() - begun:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
