"""The terminal: progress while a run works, and its table."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ..progress import Listener
from ..results.records import Result, Row
from ..verdict import limits as rule
from ..verdict.outputs import OWN_EQUAL
from . import curves, layers, training
from .layers import coverage

WIDE = 180  # characters a line where no terminal says how many there are
COLOURS = {
    "PASS": "bold green",
    "IDENTICAL": "green",
    "EQUAL": "green",
    "DRIFT": "yellow",
    "FAIL": "bold red",
    "DIFFERENT": "bold red",
    "INVALID": "bold red",
    "ERROR": "bold red",
    "UNTESTED": "yellow",
    "INCONCLUSIVE": "bold yellow",
    "FASTER": "green",
    "SLOWER": "red",
    "REFUSED": "red",
    "AMBIGUOUS": "yellow",
}


def console() -> Console:
    """Standard output; plain and wide when it is not a terminal."""
    plain = Console(highlight=False)
    return plain if plain.is_terminal else Console(highlight=False, width=WIDE, color_system=None)


@contextmanager
def progress_listener(quiet: bool) -> Iterator[Listener]:
    """Progress on standard error: live in a terminal, a line a step elsewhere, nothing when quiet."""
    console = Console(stderr=True, highlight=False)
    if quiet:
        yield Listener()
    elif console.is_terminal:
        progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.fields[left]}"),
            TimeElapsedColumn(),
            console=console,
            transient=True,
        )
        with progress:
            yield _Live(progress)
    else:
        yield _Lines()


class _Live(Listener):
    def __init__(self, progress: Progress) -> None:
        self.progress = progress
        self.task = progress.add_task("starting", total=None, left="")
        self.reference = progress.add_task("reference", total=None, left="", visible=False)

    def phase(self, subject: str, doing: str) -> None:
        text = f"[bold]{escape(subject)}[/] {escape(doing)}"
        self.progress.reset(self._task(subject), total=None, description=text, left="", visible=True)

    def _task(self, subject: str) -> TaskID:
        return self.reference if subject == "reference" else self.task

    def beat(self, subject: str, seconds: float, line: str) -> None:
        if seconds > 3 and line:
            self.progress.update(self._task(subject), left=f"[dim]{escape(line[:60])}[/]")

    def timing(self, done: int, total: int, seconds_left: float) -> None:
        self.progress.update(self.reference, visible=False)
        self.progress.update(
            self.task, description="[bold]timing[/] all subjects, interleaved", total=total, completed=done,
            left=f"round {done} of {total}, {seconds_left:.0f} s left",
        )  # fmt: skip

    def warm(self, subject: str, rate: float) -> None:
        self.progress.console.print(f"[bold]{escape(subject)}[/] is warm: about {rate:,.4g} a second")

    def launched(self, done: int, least: int, figures: str) -> None:
        count = f"launch {done} of {least} or more" if least > 1 else "timed"
        self.progress.console.print(f"[bold]{count}[/]: {escape(figures)}")

    def note(self, text: str) -> None:
        self.progress.console.print(f"[yellow]note:[/] {escape(text)}")


class _Lines(Listener):
    def __init__(self) -> None:
        self.said: dict[str, float] = {}

    def say(self, text: str) -> None:
        sys.stderr.write(text + "\n")  # one write a line: two steps may speak at once
        sys.stderr.flush()

    def phase(self, subject: str, doing: str) -> None:
        self.said[subject] = 0.0
        self.say(f"{subject}: {doing}")

    def beat(self, subject: str, seconds: float, line: str) -> None:
        if seconds - self.said.get(subject, 0.0) >= 15:
            self.said[subject] = seconds
            self.say(f"{subject}: {seconds:.0f} s so far" + (f": {line[:100]}" if line else ""))

    def warm(self, subject: str, rate: float) -> None:
        self.say(f"{subject}: warm, about {rate:,.4g} a second")

    def launched(self, done: int, least: int, figures: str) -> None:
        self.say(f"launch {done} of {least} or more: {figures}" if least > 1 else f"timed: {figures}")

    def timing(self, done: int, total: int, seconds_left: float) -> None:
        if done == 1 or done == total or done * 4 // total != (done - 1) * 4 // total:
            self.say(f"timing: round {done} of {total}, {seconds_left:.0f} s left")

    def note(self, text: str) -> None:
        self.say(f"note: {text}")


def render(
    result: Result,
    console: Console,
    quiet: bool = False,
    file: str | None = None,
    by_layer: bool = False,
    details: bool = False,
) -> None:
    """Print a result: the table, what it rests on, and the verdict as the last line.

    by_layer: every layer, too. details: what came before the timed calls, and memory, too.
    """
    if not quiet:
        console.print(_table(result, console))
        if details:
            console.print(_details(result))
        for part in training.training_tables(result.rows):
            console.print(part, soft_wrap=True)
        plot = curves.in_terminal(result.rows, min(100, console.width), plain=not console.is_terminal)
        if plot:
            console.print(Text.from_ansi(plot), soft_wrap=True)
        for row in result.rows:
            reason = row.reason or (row.error.reason if row.error and row.training is None else None)
            drifts = row.error is not None and row.error.verdict == "DRIFT"
            if reason:
                colour = "yellow" if drifts else "red"
                console.print(f"  [{colour}]{escape(row.subject)}[/]: {escape(reason)}", soft_wrap=True)
            speed = row.speed
            if speed is None or speed.reason is None or speed.reason == result.noise.refusal:
                continue  # that the machine is too noisy is said once, below
            if speed.verdict in ("REFUSED", "AMBIGUOUS") and (drifts or not reason):
                colour = COLOURS[speed.verdict]
                console.print(f"  [{colour}]{escape(row.subject)}[/]: {escape(speed.reason)}", soft_wrap=True)
        if by_layer:
            for row in result.to_dict()["rows"]:
                layers.render(row, console)
        for line in _foundation(result):
            console.print(f"[dim]{escape(line)}[/]", soft_wrap=True)
    ok = [row for row in result.rows if row.error is not None and row.error.verdict in ("IDENTICAL", "EQUAL")]
    verdict = f"[{COLOURS[result.verdict]}]{result.verdict}[/]"
    parts = [f"{len(ok)} of {len(result.rows)} subjects EQUAL", file or "", "" if quiet else _where_time_went(result)]
    console.print(f"{verdict} {escape(result.model)}: {escape('; '.join(filter(None, parts)))}", soft_wrap=True)


PARTS = ("starting", "warming", "timing", "judging")


def _table(result: Result, console: Console) -> Table:
    """The table with as many columns as the console is wide enough for."""
    literal = result.settings.rerun is not None
    modelled = any(row.error and row.error.noise_ratio is not None for row in result.rows)
    judged = any(row.speed and len(row.speed.launches) > 1 for row in result.rows)
    learnt = all(row.task == "train" for row in result.rows)
    absent = ((*OWN, *MODELLED) if learnt else OWN if modelled else MODELLED) + (
        () if len(result.tasks) > 1 else ("task",)
    )
    absent += (() if literal else LITERAL) + (() if judged else ("speed",))
    shown = {title: cell for title, cell in COLUMNS.items() if title not in absent}
    for title in ("", *SPARED):
        shown.pop(title, None)
        table = Table(title=_title(result), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
        for name in shown:
            left = name in ("subject", "task", "verdict")
            table.add_column(name.format(rate=_rate(result)), justify="left" if left else "right", no_wrap=True)
        for row in result.rows:
            table.add_row(*(cell(row) for cell in shown.values()))
        if console.measure(table, options=console.options.update(width=1000)).maximum <= console.width:
            break
    return table


def _details(result: Result) -> Table:
    table = Table(
        title="before the timed calls; memory in MiB: of the import alone, and what peak and average have more",
        title_justify="left",
        box=SIMPLE_HEAD,
        pad_edge=False,
    )
    shown = {name: cell for name, cell in DETAILS.items() if result.settings.device != "cpu" or "GPU" not in name}
    for name in shown:
        table.add_column(name, justify="left" if name == "subject" else "right", no_wrap=True)
    for row in result.rows:
        table.add_row(*(cell(row) for cell in shown.values()))
    return table


def _title(result: Result) -> str:
    title = f"{result.model}, {', '.join(result.tasks)}, batch {result.rows[0].batch}"
    warmup, rerun = result.settings.warmup, result.settings.rerun
    if rerun is not None:
        title += f": {rerun} batches timed" + (f" after {warmup} to warm up" if warmup is not None else "")
    return title


def _rate(result: Result) -> str:
    return "FPS" if result.item == "image" else f"{result.item}s/s"


def _ratio(row: Row) -> str:
    speed = row.speed
    if not speed or speed.ratio is None or refused(row):
        return "-"
    low, high = speed.ratio_ci
    if len(speed.launches) < 2 or low is None or high is None or speed.verdict == "BASELINE":
        return f"{speed.ratio:.3f}"
    return f"{speed.ratio:.3f} ({low:.3f}–{high:.3f})"


def _speed_verdict(row: Row) -> str:
    verdict = row.speed.verdict if row.speed else None
    return f"[{COLOURS.get(verdict, 'default')}]{verdict}[/]" if verdict else "-"


def _detail(name: str, form: str = "{:.3g}") -> Callable[[Row], str]:
    return lambda row: _number(getattr(row.speed, name) if row.speed else None, form)


def _launch_detail(name: str, form: str) -> Callable[[Row], str]:
    """The mean over launches."""

    def cell(row: Row) -> str:
        found = [getattr(launch, name) for launch in row.speed.launches] if row.speed else []
        known = [value for value in found if value is not None]
        return _number(sum(known) / len(known) if known else None, form)

    return cell


def _over_import(name: str) -> Callable[[Row], str]:
    """Memory beyond what the framework takes by being imported."""

    def cell(row: Row) -> str:
        value, base = getattr(row.memory, name), row.memory.import_rss_mib
        return _number(None if value is None or base is None else value - base, "{:,.0f}")

    return cell


DETAILS: dict[str, Callable[[Row], str]] = {
    "subject": lambda row: escape(row.subject),
    "launches": lambda row: str(len(row.speed.launches)) if row.speed else "-",
    "import s": _detail("import_seconds"),
    "build s": _detail("build_seconds"),
    "first step s": _detail("first_step_seconds"),
    "second step s": _detail("second_step_seconds"),
    "compile s": _detail("compile_seconds"),
    "warm-up": _launch_detail("warmup_calls", "{:,.0f}"),
    "p99 s": _detail("p99_seconds"),
    "faults/call": _launch_detail("faults_per_call", "{:,.0f}"),
    "import": lambda row: _number(row.memory.import_rss_mib, "{:,.0f}"),
    "+ peak": _over_import("peak_rss_mib"),
    "+ average": _over_import("average_rss_mib"),
    "GPU peak": lambda row: _number(row.memory.gpu_peak_mib, "{:,.0f}"),
    "GPU process": lambda row: _number(row.memory.gpu_process_mib, "{:,.0f}"),
}


def _verdict(row: Row) -> str:
    verdict = row.error.verdict if row.error else row.status
    return f"[{COLOURS.get(verdict, 'red')}]{verdict}[/]"


def _seconds(row: Row, name: str) -> str:
    return _figure(getattr(row.speed, name)) if row.speed and not refused(row) else "-"


def _layers(row: Row) -> str:
    """How many layers were compared of how many there are, or how many of them differ."""
    found = row.error.layers if row.error else None
    if found is None or not found.compared:
        return "-"
    differing = sum(layer.verdict == "DIFFERENT" for layer in found.layers)
    return f"[red]{differing} of {found.known} differ[/]" if differing else f"{found.compared}/{found.known}"


def refused(row: Row) -> bool:
    """Whether its speed does not count, on a quiet machine either."""
    return row.speed is not None and row.speed.verdict == "REFUSED" and not row.speed.noisy


def _fps(row: Row) -> str:
    speed = row.speed
    if speed is None:
        return "-"
    low, high = speed.fps_ci
    text = _figure(speed.fps)
    if refused(row):
        return f"[strike]{text}[/] not counted"
    if low is not None and high is not None:
        text += f" ({_figure(low)}–{_figure(high)})"
    return text


COLUMNS: dict[str, Callable[[Row], str]] = {
    "subject": lambda row: escape(row.subject),
    "task": lambda row: row.task,
    "{rate} (95% interval)": _fps,
    "elapsed s": lambda row: _seconds(row, "elapsed_seconds"),
    "s/batch": lambda row: _seconds(row, "seconds_per_step"),
    "time ratio": _ratio,
    "speed": _speed_verdict,
    "relative error": lambda row: _number(row.error.rel_rms if row.error else None),
    "mean |Δ|": lambda row: _number(row.error.mean_abs if row.error else None),
    "max |Δ|": lambda row: _number(row.error.max_abs if row.error else None),
    "÷ float32's": lambda row: _number(row.error.float32_ratio if row.error else None, "{:.2f}"),
    "÷ noise": lambda row: _number(row.error.noise_ratio if row.error else None, "{:.2f}"),
    "layers": _layers,
    "verdict": _verdict,
    "peak MiB": lambda row: _number(row.memory.peak_rss_mib, "{:,.0f}"),
}
MODELLED, OWN = ("÷ noise", "layers"), ("÷ float32's",)  # with the noise of all layers modelled, and without
LITERAL = ("elapsed s", "s/batch")  # without --rerun every row is timed for calls of its own number
# What goes first where there is no room.
SPARED = (
    "max |Δ|",
    "mean |Δ|",
    "÷ float32's",
    "peak MiB",
    "elapsed s",
    "s/batch",
    "layers",
    "relative error",
    "speed",
    "time ratio",
)


def _figure(value: float) -> str:
    """Four significant digits, with separators for thousands."""
    if value >= 1000:
        return f"{float(f'{value:.4g}'):,.0f}"
    return f"{value:.4g}"


def _number(value: float | None, form: str = "{:.1e}") -> str:
    return "-" if value is None else form.format(value)


def _coverage(result: Result) -> list[str]:
    """What the layers' verdicts rest on, and what they leave out."""
    reference, lines = result.reference, []
    known = reference.layers
    if not known:
        why = f"{reference.framework} is the reference, and only torch's modules are replayed"
        lines.append(f"layers: none compared: {reference.replay_problem or why}")
        return lines
    compared = [(row, row.error.layers) for row in result.rows if row.error is not None]
    whole = sum(found is not None and found.compared == found.known for _, found in compared)
    lines.append(
        f"layers: each of {known} computed again in float64 from what it was given (case 0); all of them in {whole} of "
        f"{len(compared)} subjects; xverify explain FILE.json shows each"
    )
    for row, found in compared:
        if found is None or not found.compared:
            why = (found.stopped if found else "") or "its layers cannot be seen"
            lines.append(f"  {row.subject}: {why}; outputs alone were compared")
        elif found.missing or found.matched or found.stopped:
            lines.append(f"  {row.subject}: {coverage(asdict(found))}")
    untested = reference.untested
    if untested:
        lines.append(
            f"UNTESTED: {len(untested)} of {len(untested) + reference.tested} weights and constants, in which a fault would not "
            f"show on these inputs: {', '.join(untested[:4])}{', …' if len(untested) > 4 else ''}"
        )
    return lines


def _foundation(result: Result) -> list[str]:
    digest = result.weights.digest
    equal = sum(row.weights_digest == digest for row in result.rows) if digest else 0
    lines = []
    if digest:
        lines.append(
            f"weights: {result.weights.parameters:,} parameters in {result.weights.tensors} tensors "
            f"and {result.weights.statistics} of running statistics, "
            f"{result.weights.source}; read back equal from {equal} of {len(result.rows)} subjects ({digest[:19]}…)"
        )
        if "train" in result.tasks:
            batches = f"{result.inputs.kind}; {result.inputs.cases} batches"
            lines.append(f"training: {batches}; errors are those of the gradients, against torch in float64")
        else:
            lines.append(_measure(result))
            lines += _coverage(result)
        if result.weights.normal_form:
            sums = ", ".join(
                f"{name} = {' + '.join(parts)}" for name, parts in list(result.weights.normal_form.items())[:2]
            )
            lines.append(f"digests are of the form that every framework here can hold: {sums}, …")
        routes = sorted({row.weights_route for row in result.rows if row.weights_route})
        lines.append(f"weight routes: {'; '.join(routes)}")
    lines += [f"note: {note}" for note in result.notes]
    lines += _timed_on(result)
    return lines


def _measure(result: Result) -> str:
    """What errors are measured against."""
    reference = result.reference
    divided = f"'÷ float32's' divides by {reference.floor}; EQUAL up to {OWN_EQUAL:g}"
    if reference.layers:
        divided = (
            f"'÷ noise' divides by the rounding of every layer, modelled and measured; EQUAL up to {rule.EQUAL_RHO:g}"
        )
    cases = result.inputs.cases
    return f"errors: against {reference.framework} in {reference.precision}, {cases} input cases; {divided}"


def _timed_on(result: Result) -> list[str]:
    """The machine, its noise, and what the intervals mean."""
    host, noise, lines = result.host, result.noise, []
    launches = max((len(row.speed.launches) for row in result.rows if row.speed), default=0)
    meaning = "one launch: the interval is within it, so no verdict on speed (--effort standard gives one)"
    if launches > 1:
        meaning = f"{launches} launches, each of fresh processes: intervals are over launches; SAME is within ±2%"
    lines.append(
        f"{host.cpu}, {result.settings.threads} threads; {meaning}; "
        "time ratio: this row's time over the first row's, paired by round"
    )
    if noise.rounds:
        dropped = f"{noise.dropped} of {noise.rounds} rounds dropped as noisy"
        if noise.dropped:
            dropped += f" ({', '.join(f'{reason}: {count}' for reason, count in noise.reasons.items())})"
            if noise.culprit:
                dropped += f"; {noise.culprit}"
            if noise.refusal:
                dropped = f"TOO NOISY for a verdict on speed: {noise.refusal}"
        if noise.missing:
            dropped += f"; this system does not tell {', '.join(noise.missing)}"
        lines.append(dropped)
    for row in result.rows:
        memory = row.memory
        if memory.nearly_full:
            held = f"{memory.gpu_used_mib:,.0f} of {memory.gpu_total_mib:,.0f} MiB"
            lines.append(
                f"{row.subject}: the device's memory was nearly full ({held}): a framework may have paged, or chosen slower "
                "algorithms; try a smaller --batch"
            )
    return lines


def _where_time_went(result: Result) -> str:
    """Seconds by what was done, and what the subjects take by themselves: import, build, first steps, warm-up, timed calls."""
    spent = result.timeline
    shares = [f"{spent[part + '_seconds']:.0f} {part}" for part in PARTS if part + "_seconds" in spent]
    if not shares:
        return ""
    own = f"the subjects by themselves {spent['unavoidable_seconds']:.0f} s"
    return f"{spent['total_seconds']:.0f} s = {' + '.join(shares)} ({own})"
