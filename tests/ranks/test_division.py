"""How ranks divide a batch, and what is refused before anything starts."""

from dataclasses import replace

import pytest

from xverify.engine import memory
from xverify.engine.stages import Subject, subjects_of
from xverify.errors import UsageError
from xverify.framework.discovery import load
from xverify.reference.request import resolve
from xverify.workload.options import RunSettings
from xverify.workload.ranks import Ranks, ranks


def test_a_batch_is_divided_evenly_or_as_asked():
    assert ranks(None, None, (), 8) is None
    assert ranks(4, None, (), 8) == Ranks("ddp", 4, (2, 2, 2, 2))
    divided = ranks(2, "own", (3, 1), 8)
    assert divided == Ranks("own", 2, (6, 2))
    assert divided.shares == (0.75, 0.25)
    assert divided.parts == [slice(0, 6), slice(6, 8)]
    assert divided.uneven
    assert divided.says() == "2 ranks, plan own, 6 + 2 items"
    whole = ranks(2, "tp", (), 7)
    assert (whole.items, whole.parts, whole.shares) == ((), [], (0.5, 0.5))


@pytest.mark.parametrize(
    ("asked", "says"),
    [
        ((None, "ddp", (), 8), "--plan belongs to --ranks"),
        ((None, None, (1, 1), 8), "--shards belongs to --ranks"),
        ((9, None, (), 8), "--ranks 9: a batch of 8 has fewer items than that"),
        ((3, None, (), 8), "--ranks 3: a batch of 8 cannot be divided so: name a --batch that 3 divides"),
        ((2, None, (2, 1), 8), "--shards 2,1: a batch of 8 cannot be divided so"),
        ((2, None, (1, 1, 2), 8), "--shards 1,1,2 has 3 numbers for 2 ranks"),
        ((2, "tp", (3, 1), 8), "with --plan tp every rank has the whole batch"),
    ],
)
def test_what_cannot_be_divided_is_refused(asked, says):
    with pytest.raises(UsageError, match=says):
        ranks(*asked)


def test_only_frameworks_with_ranks_run_where_no_subject_is_named():
    request, _ = resolve("mlp", None, RunSettings(task="train", ranks=2))
    assert request.subjects == ("torch:eager", "tensorflow:eager", "tensorflow:graph")
    assert resolve("mlp", None, RunSettings(task="train", ranks=2, plan="fsdp"))[0].subjects == ("torch:eager",)
    assert request.divided == Ranks("ddp", 2, (16, 16))
    request = replace(request, subjects=request.subjects[:1])
    assert [(each.label, each.processes) for each in subjects_of(request)] == [
        ("torch:eager (one process)", 1),
        ("torch:eager", 2),
    ]
    assert [each.label for each in subjects_of(replace(request, no_timing=True))] == ["torch:eager"]
    assert "each of 2 ranks has" in request.notes[0]


def test_what_has_no_ranks_has_nothing_beside_it_and_devices_are_one_process():
    request, _ = resolve("mlp", ["numpy", "torch:compile", "jax"], RunSettings(task="train", ranks=2, threads=3))
    found = subjects_of(request)
    assert [each.label for each in found] == ["numpy", "torch:compile", "jax (one process)", "jax"]
    assert [each.processes for each in found] == [2, 2, 1, 1]
    assert [bool(each.without_ranks) for each in found] == [True, True, False, False]


def test_memory_is_planned_by_the_processes_of_each_subject():
    ranks = Ranks("ddp", 2, (4, 4))
    work = memory.Work({"w": (2**9, 2**9)})
    torch, jax = (load(name) for name in ("torch", "jax"))

    def needs(*subjects):
        return memory.plan(work, subjects, 2**40).needed

    alone = needs(Subject(torch, "eager"))
    assert needs(Subject(torch, "eager", ranks)) == needs(Subject(torch, "eager"), Subject(torch, "eager")) > alone
    assert needs(Subject(jax, "jit", ranks)) == needs(Subject(jax, "jit"))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--ranks", "1"], "--ranks is 1: it must be at least 2"),
        (["--ranks", "2", "--plan", "pp"], "--plan is 'pp'"),
        (["--ranks", "2", "--shards", "a"], "--shards a: write one whole number for each rank"),
        (["--ranks", "2", "--shards", "0,1"], "--shards is 0: it must be at least 1"),
        (["--ranks", "2", "--no-timing", "--warmup", "3"], "--warmup says how subjects are timed, and --no-timing"),
        (["--ranks", "2", "--dropout-masks"], "--dropout-masks is not supported with --ranks"),
        (["--ranks", "64"], "--ranks 64: a batch of 32 has fewer items than that"),
    ],
)
def test_options_that_do_not_go_together_are_refused(xverify, options, says):
    done = xverify("run", "mlp", "--task", "train", *options)
    assert done.code == 2
    assert says in done.err
