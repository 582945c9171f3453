"""The time and memory of a step on several ranks, beside the same step in one process, through the command line."""

import pytest
from helpers.rankmodels import AVERAGED, BREAKING, BY_HAND, GOAL, STEP, folder

pytest.importorskip("torch")
pytestmark = pytest.mark.slow
TRAIN = ("--task", "train", "--steps", "3", "--threads", "2", "--ranks", "2")
COUNTED = ("--warmup", 4, "--rerun", 24)
ALONE = "torch:eager (one process)"
SUMMED = AVERAGED.replace("average)", "distributed.all_reduce)")
PAUSE = 0.1  # seconds
# Rank 1 is late after every step, when rank 0 has nothing to wait for any more.
LATE = BY_HAND.replace("def parallelize", "import time\n\n\ndef parallelize").replace(
    "    return model\n", "    model.late = distributed.get_rank() == 1\n    return model\n"
)
LATE_STEP = STEP.replace(
    "    optimizer.step()\n", f'    optimizer.step()\n    if getattr(model, "late", 0):\n        time.sleep({PAUSE})\n'
)
# Rank 1 is killed in its 20th forward pass: after two steps and four of the warm-up, in a timed one.
DYING = BREAKING.replace("model.calls = 0", "model.calls = -18").format("os.kill(os.getpid(), signal.SIGKILL)")


def speeds(done, *subjects):
    return [done.row(subject)["speed"] for subject in subjects]


def test_a_step_on_ranks_is_timed_in_the_rounds_of_one_process(xverify, tmp_path):
    place = folder(tmp_path / "net", {"torch": AVERAGED})
    done = xverify("run", place, *TRAIN, "--plan", "own", *COUNTED, "--details")
    assert done.code == 0, done.out + done.err
    assert [row["subject"] for row in done.result["rows"]] == [ALONE, "torch:eager"]
    alone, ranked = done.result["rows"]
    assert [row["error"]["verdict"] for row in (alone, ranked)] == ["EQUAL", "EQUAL"]
    assert (alone["training"]["ranks"], ranked["training"]["ranks"]) == ("", "2 ranks, plan own, 4 + 4 items")
    for speed in (alone["speed"], ranked["speed"]):
        assert (speed["warmup_calls"], speed["calls"]) == (4, 24)
    assert len({row["speed"]["samples"][-1]["round"] for row in (alone, ranked)}) == 1
    assert ranked["memory"]["peak_rss_mib"] > 1.5 * alone["memory"]["peak_rss_mib"], "that of both ranks"
    assert ranked["memory"]["import_rss_mib"] > 1.5 * alone["memory"]["import_rss_mib"]
    said = " ".join(done.out.split())
    assert "each of 2 ranks has 1 thread, and one process that trains alone has 2" in said
    assert "their speed is not that of several machines" in said
    counted = all(row["speed"]["counted"] for row in (alone, ranked))
    assert ("Ranks: torch:eager: a step on 2 ranks takes " in said) == counted


def test_the_slowest_rank_counts_and_all_ranks_make_the_same_number_of_steps(xverify, tmp_path):
    """Rank 0 could end its warm-up by its own clock one step after rank 1, and would wait for it in this step."""
    place = folder(tmp_path / "net", {"torch": LATE_STEP + LATE}, GOAL)
    done = xverify("run", place, *TRAIN, "--plan", "own", "--cases", 1, "--rerun", 8, "--timeout", 40)
    assert done.code == 0, done.out + done.err
    alone, ranked = speeds(done, ALONE, "torch:eager")
    assert min(each["seconds"] / each["calls"] for each in ranked["samples"]) >= PAUSE
    assert alone["seconds_per_step"] < PAUSE / 2


def test_what_fails_or_is_wrong_has_no_speed_and_leaves_that_of_one_process(xverify, tmp_path):
    files = {"torch": AVERAGED, "torch-wrong": SUMMED, "torch-dying": DYING}
    done = xverify("run", folder(tmp_path / "net", files), *TRAIN, "--plan", "own", *COUNTED)
    assert done.code == 1, done.out + done.err
    rows = {row["subject"]: row for row in done.result["rows"]}
    assert len(rows) == 6
    for name in ("torch", "torch-wrong", "torch-dying"):
        alone = rows[f"{name}:eager (one process)"]
        assert (alone["status"], alone["error"]["verdict"], alone["speed"]["calls"]) == ("ok", "EQUAL", 24), name
    wrong, dying = rows["torch-wrong:eager"], rows["torch-dying:eager"]
    assert wrong["error"]["verdict"] == "DIFFERENT"
    assert (wrong["speed"]["counted"], wrong["speed"]["not_counted"]) == (False, "DIFFERENT")
    assert dying["status"] == "crashed"
    assert "rank 1: killed by SIGKILL" in dying["reason"]
    assert dying["error"] is None


@pytest.mark.long
def test_a_run_goes_on_with_the_process_runs_that_it_has(xverify, tmp_path):
    place, file = folder(tmp_path / "net", {"torch": ""}), tmp_path / "result.json"
    words = ("run", place, *TRAIN, *COUNTED, "--json", file)
    assert xverify(*words).code == 0
    done = xverify(*words, "--effort", "standard", "--max-seconds", 300, "--resume")
    assert done.code == 0, done.out + done.err
    launches = [[run["launch"] for run in speed["launches"]] for speed in speeds(done, ALONE, "torch:eager")]
    assert launches[0] == launches[1]
    assert launches[0][:2] == [0, 1]
    assert done.row("torch:eager")["error"]["verdict"] == "EQUAL", "of a later process run, too"
