"""A history in words: the names of series, sentences about changes, and the conclusion. All formats share them."""

from __future__ import annotations

import datetime
import json
from collections.abc import Iterator

from ..report import numbers
from ..report.compared import WORDS
from ..report.text import one_line
from ..results.verdicts import Outcome
from .changes import RATIO, VERDICT
from .records import BETTER, CHANGED, IMPROVED, REGRESSED, SAME, WORSE, Change, History, Key, Series

LONGEST_NAME = 120  # characters of a name
MOST_NAMED = 5  # series that the conclusion names
MOST_MEANWHILE = 6  # versions and digests in a sentence
# Standing of a series -> the heading of these series.
HEADINGS = {
    REGRESSED: "Regressions",
    IMPROVED: "Improvements",
    CHANGED: "Other changes",
    SAME: "Without a change",
}


def name(series: Series) -> str:
    """Model, task and subject of a series."""
    return ", ".join(one_line(each, LONGEST_NAME) or "(no name)" for each in series.key[:3])


def machine(key: Key) -> str:
    """The machine of a series."""
    return one_line(
        f"{key.cpu or 'an unknown processor'}, {key.cores} core{'' if key.cores == 1 else 's'}", LONGEST_NAME
    )


def facts(key: Key, with_machine: bool = True) -> str:
    """The settings of a series, and its machine."""
    threads = f"{key.threads} thread{'' if key.threads == 1 else 's'}" if key.threads else ""
    made = [f"batch {key.batch}", threads, key.device, key.precision, *_settings(key.settings)]
    text = one_line(", ".join(filter(None, made)), 400)
    return f"{text}; {machine(key)}" if with_machine else text


def _settings(text: str) -> Iterator[str]:
    for setting, value in json.loads(text).items():
        yield setting if value is True else f"{setting} {_value(value)}"


def _value(value: object) -> str:
    if isinstance(value, dict):
        name = [str(value["name"])] if "name" in value else []
        return " ".join([*name, *(f"{key} {_value(item)}" for key, item in value.items() if key != "name")])
    if isinstance(value, list):
        return ",".join(map(_value, value))
    return f"{value:g}" if isinstance(value, float) else str(value)


def moment(time: datetime.datetime) -> str:
    """A time in UTC, to the minute."""
    return time.isoformat(sep=" ", timespec="minutes")


def when(change: Change) -> str:
    """The time of a change, and whether it is that of the newest result."""
    return moment(change.created) + (", the newest result" if change.newest else "")


def what(change: Change) -> str:
    """What changed, with both values and by how much."""
    return f"{change.measure} {change.before} → {change.after}{_by(change)}"


def _by(change: Change) -> str:
    if change.factor is None or change.effect not in (WORSE, BETTER):
        return ""
    share = abs(change.factor - 1)
    size = f"{share:.0%}" if share < 10 else f"{numbers.figure(change.factor)} times"
    words = ("slower", "faster") if change.measure == RATIO else ("more", "less")
    return f", {size} {words[change.effect == BETTER]}"


def _meanwhile(change: Change) -> str:
    """The versions and digests that changed at the same time."""
    if not change.meanwhile:
        return "no version or digest in the results changed at the same time"
    shown = ", ".join(one_line(each, 160) for each in change.meanwhile[:MOST_MEANWHILE])
    more = len(change.meanwhile) - MOST_MEANWHILE
    return f"changed at the same time: {shown}{f' and {more} more' if more > 0 else ''}"


def headline(series: Series) -> str:
    """What is worse in the newest result of a series, and why."""
    worse = next(each for each in series.changes if each.newest and each.effect == WORSE)
    return "; ".join([what(worse), *list(remarks(worse))[:1]])


def remarks(change: Change) -> Iterator[str]:
    """The reason of a verdict, and what changed at the same time."""
    if change.measure == VERDICT and change.reason and change.effect != BETTER:
        yield f"reason: {one_line(change.reason, 400)}"
    yield _meanwhile(change)


def outcome(history: History) -> Outcome:
    """FAIL when the newest result of a series is worse, INCONCLUSIVE when no series has two results, otherwise PASS."""
    if any(each.newly_worse for each in history.series):
        return Outcome.FAIL
    return Outcome.PASS if history.comparable else Outcome.INCONCLUSIVE


def conclusion(history: History) -> str:
    """The outcome and what decided it, as a sentence without its word."""
    if outcome(history) == Outcome.FAIL:
        worse = [name(each) for each in history.series if each.newly_worse]
        more = f" and {len(worse) - MOST_NAMED} more" if len(worse) > MOST_NAMED else ""
        named = "; ".join(worse[:MOST_NAMED])
        return f"{len(worse)} of {len(history.series)} series in their newest result: {named}{more}"
    if outcome(history) == Outcome.INCONCLUSIVE:
        return nothing(history)
    counts = [
        f"{len(of)} {words}"
        for words, of in (("worse since an earlier result", history.of(REGRESSED)), ("better", history.of(IMPROVED)))
        if of
    ]
    return "; ".join([f"{len(history.series)} series of {_results(history.results)}", *counts])


def word(history: History) -> str:
    """The outcome as the word that a comparison of two results has, too."""
    return WORDS[outcome(history)]


def nothing(history: History) -> str:
    """Why nothing was compared."""
    if not history.results:
        return f"no result of xverify is in the folder {history.folder}"
    if not history.series:
        when = f" since {moment(history.since)}" if history.since is not None else ""
        return f"no result that was asked for is in the folder {history.folder}{when}"
    return f"no series has two results to compare: {len(history.series)} series of {_results(history.results)}"


def _results(count: int) -> str:
    return f"{count:,} result{'' if count == 1 else 's'}"


def skipped(history: History) -> Iterator[str]:
    """Sentences about the files that are not in the history."""
    if history.skipped.others:
        one = history.skipped.others == 1
        yield f"{history.skipped.others:,} JSON {'file is no result' if one else 'files are no results'} of xverify"
    if history.skipped.unreadable:
        one = history.skipped.unreadable == 1
        yield f"{history.skipped.unreadable:,} {'file' if one else 'files'} cannot be read, and {'is' if one else 'are'} left out"
        for path, why in history.skipped.problems:
            yield f"{one_line(path, LONGEST_NAME)}: {why}"
        more = history.skipped.unreadable - len(history.skipped.problems)
        if more > 0:
            yield f"and {more:,} more: --sql \"SELECT path, problem FROM files WHERE kind = 'unreadable'\" lists them"
