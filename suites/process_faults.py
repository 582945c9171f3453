"""The faults of processes that suites/processes.py injects: what happens, where, when, and how the run has to end."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

SUBJECT, REFERENCE, PARENT, RANK = "subject", "reference", "parent", "rank"
PHASES = ("module", "build", "load", "first", "warm", "timed")  # moments in the life of a model
OF_RANKS = ("module", "parallelize", "first", "later")  # moments in the life of a model that several ranks train
CRASHED, FAILED, LATE, OK = "crashed", "failed", "timeout", "ok"
STEP = 5.0  # seconds that a step may take where it hangs


@dataclass(frozen=True)
class Fault:
    """One fault.

    code: statements that the model runs at ``phase``. where: in which process; RANK: in the second of two ranks.
    statuses: those that the row of the subject may have.
    says: what its reason must contain. timeout: seconds of a step. options: of ``xverify run``.
    sent: the signal that the parent gets when it reports ``line``; code is empty then.
    limits: limits of the parent, name -> value.
    """

    name: str
    code: str = ""
    where: str = SUBJECT
    phase: str = "build"
    statuses: tuple[str, ...] = (CRASHED,)
    says: str = ""
    timeout: float = 60.0
    options: tuple[str, ...] = ()
    sent: str = ""
    line: str = ""
    limits: tuple[tuple[str, int], ...] = ()


WRITE = """
for descriptor in range(3, 30):
    try: os.write(descriptor, {text})
    except OSError: pass
"""
LINGER = "time.sleep(600); os._exit(0)"
SLEEP = "[sys.executable, '-c', 'import time; time.sleep(600)']"
# Name -> (code, statuses, what the reason says).
DEATHS = {
    **{
        f"SIG{name}": (f"os.kill(os.getpid(), signal.SIG{name})", (CRASHED,), f"SIG{name}")
        for name in ("KILL", "SEGV", "ABRT", "TERM", "HUP", "BUS", "FPE", "ILL")
    },
    "a signal without a name": ("os.kill(os.getpid(), signal.SIGRTMIN + 3)", (CRASHED,), "killed by signal"),
    "a real segmentation fault": ("import ctypes; ctypes.string_at(0)", (CRASHED,), "SIGSEGV"),
    "os._exit(0)": ("os._exit(0)", (CRASHED,), "exited with status 0"),
    "os._exit(7)": ("os._exit(7)", (CRASHED,), "exited with status 7"),
}
RAISES = {
    "sys.exit": ("sys.exit(3)", (FAILED,), "SystemExit"),
    "an exception": ("raise ValueError('planted')", (FAILED,), "planted"),
    "endless recursion": ("f = lambda: f(); f()", (FAILED,), "Recursion"),
    "MemoryError": ("raise MemoryError('planted')", (FAILED,), "out of memory"),
    "an exception without text": (
        "raise type('E', (Exception,), {'__str__': lambda self: 1/0})()",
        (FAILED, CRASHED),
        "",
    ),
    "control characters": ("raise ValueError('\\x1b[2J\\ud800 planted')", (FAILED,), "planted"),
    "KeyboardInterrupt": ("raise KeyboardInterrupt", (FAILED, CRASHED), ""),
    "GeneratorExit": ("raise GeneratorExit('planted')", (FAILED,), ""),
}
HANGS = {
    "sleep": ("time.sleep(600)", (LATE,), "--timeout"),
    "an endless loop": ("while True: pass", (LATE,), "--timeout"),
    "SIGSTOP": ("os.kill(os.getpid(), signal.SIGSTOP)", (LATE,), "--timeout"),
    "a lost thread": (
        "threading.Thread(target=time.sleep, args=(600,)).join if 0 else threading.Event().wait()",
        (LATE,),
        "",
    ),
}
# Processes that stay, while the model goes on.
HANGS_OF_RANKS = {"sleep": "time.sleep(600)", "a stopped process": "os.kill(os.getpid(), signal.SIGSTOP)"}
# In the forward pass of a rank. Name -> (code, statuses, what the reason says).
MISMATCHES = {
    "no collective operation": ("SKIPPED.update(NAMES)", (FAILED,), "that rank 1 did not call"),
    "one operation less": ("SKIPPED.add('fc1.weight')", (FAILED, CRASHED), "collective operation"),
    "one operation more": (
        "distributed.all_reduce(torch.zeros(3))",
        (CRASHED,),
        "the ranks call other collective operations",
    ),
    "another operation": ("distributed.broadcast(torch.zeros(3), 1)", (FAILED, CRASHED), "collective operation"),
    "another size": ("WIDER.add('fc1.weight')", (CRASHED,), "tensors of other sizes"),
}
STAY = {
    "a fork": f"if os.fork() == 0: {LINGER}",
    "a double fork": f"if os.fork() == 0:\n    if os.fork() == 0: {LINGER}\n    os._exit(0)",
    "a fork in a session of its own": f"if os.fork() == 0: os.setsid(); {LINGER}",
    "Popen": f"subprocess.Popen({SLEEP})",
    "Popen in a session of its own": f"subprocess.Popen({SLEEP}, start_new_session=True, close_fds=False)",
    "a daemon": f"if os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0: {LINGER}\n    os._exit(0)",
    "a process that ignores signals": (
        "if os.fork() == 0:\n    [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 13, 15)]\n    " + LINGER
    ),
}
WRITER = "import os, time\nwhile True:\n    os.makedirs('more', exist_ok=True); open('more/x', 'a').write('x'); time.sleep(0.01)"
GARBAGE = {
    "text": "b'loading...\\n'",
    "bytes": "bytes(range(256)) * 40 + b'\\n'",
    "half a message": 'b\'{"id": 3, "reply": {"sec\\n\'',
    "a number": "b'99\\n'",
    "a long line": "b'x' * 300_000_000",
    "deep JSON": "b'[' * 200_000 + b'\\n'",
    "another reply": 'b\'{"id": 2, "reply": {"more": 1}}\\n\'',
    "a number that is too large": 'b\'{"id": 2, "reply": {"environment": {}, "seconds": 1\' + b\'0\' * 400 + b\'}}\\n\'',
    "many lines": "b'x\\n' * 500_000",
    "an unknown status": 'b\'{"id": 2, "error": {"status": "fine", "reason": "planted"}}\\n\'',
}
FOLDERS = {
    "its folder is removed": "shutil.rmtree(os.environ['TMPDIR'])",
    "the run's folder is removed": "shutil.rmtree(os.path.dirname(os.environ['TMPDIR']))",
    "its files may not grow": "import sys; sys.dont_write_bytecode = True; resource.setrlimit(resource.RLIMIT_FSIZE, (300, 300))",
    "it has no descriptors": "resource.setrlimit(resource.RLIMIT_NOFILE, (3, 3))",
    "its folder becomes a file": "p = os.environ['TMPDIR']; shutil.rmtree(p); open(p, 'w').close()",
}
DAMAGE = """
import glob
def damage():
    while True:
        for path in glob.glob(os.environ['TMPDIR'] + '/outputs-*.npz') + glob.glob(os.environ['TMPDIR'] + '/*.npz'):
            {how}
        time.sleep(0.001)
threading.Thread(target=damage, daemon=True).start()
"""


def all_faults() -> Iterator[Fault]:
    """Every fault, once."""
    yield from _deaths()
    yield from _hangs()
    yield from _staying()
    yield from _broken_protocol()
    yield from _files_and_limits()
    yield from _parents()
    yield from _ranks()


def _ranks() -> Iterator[Fault]:
    """One of two ranks ends, raises, hangs or calls other collective operations; and signals to the parent of ranks."""
    named = {name: DEATHS[name] for name in ("SIGKILL", "SIGSEGV", "SIGTERM", "os._exit(0)", "os._exit(7)")}
    named |= {name: RAISES[name] for name in ("sys.exit", "an exception")}
    for phase, (name, (code, statuses, says)) in itertools.product(OF_RANKS, named.items()):
        yield Fault(f"rank 1: {name} in {phase}", code, RANK, phase, statuses, says, timeout=30)
    for phase, (name, code) in itertools.product(OF_RANKS, HANGS_OF_RANKS.items()):
        yield Fault(f"rank 1: {name} in {phase}", code, RANK, phase, (LATE,), "rank 1", timeout=20)
    for phase, (name, (code, statuses, says)) in itertools.product(("first", "later"), MISMATCHES.items()):
        yield Fault(f"rank 1: {name} in {phase}", code, RANK, phase, statuses, says, timeout=20)
    for sent, line in itertools.product(("INT", "TERM", "KILL"), ("first step", "one step")):
        yield Fault(
            f"ranks: SIG{sent} to the parent at {line}", "", RANK, "first", ("", FAILED, OK), sent=sent, line=line
        )


def _deaths() -> Iterator[Fault]:
    """The subject ends or raises in every phase; the reference in some."""
    for phase, (name, (code, statuses, says)) in itertools.product(PHASES, {**DEATHS, **RAISES}.items()):
        if name in DEATHS or phase in ("build", "load", "first"):
            yield Fault(f"{name} in {phase}", code, phase=phase, statuses=statuses, says=says)
    for phase in ("module", "build", "load", "first"):
        for name in ("SIGKILL", "SIGSEGV", "os._exit(0)"):
            code, _, says = DEATHS[name]
            yield Fault(f"reference: {name} in {phase}", code, REFERENCE, phase, (FAILED,), says)
        for name in ("sys.exit", "an exception"):
            code, _, says = RAISES[name]
            # A model that raises in its first call and computes the second is asked again.
            ends, says = ((FAILED, OK), "") if phase == "first" else ((FAILED,), says)
            yield Fault(f"reference: {name} in {phase}", code, REFERENCE, phase, ends, says)


def _hangs() -> Iterator[Fault]:
    for phase, (name, (code, statuses, says)) in itertools.product(("build", "first", "timed"), HANGS.items()):
        yield Fault(f"{name} in {phase}", code, phase=phase, statuses=statuses, says=says, timeout=STEP)
    for name, (code, _, _) in list(HANGS.items())[:3]:
        yield Fault(f"reference: {name} in build", code, REFERENCE, "build", (FAILED,), "--timeout", STEP)


def _staying() -> Iterator[Fault]:
    """Processes that stay when the model goes on, dies or hangs."""
    for name, code in STAY.items():
        yield Fault(f"{name} stays", code, statuses=(OK,))
        yield Fault(f"{name} stays behind os._exit", f"{code}\nos._exit(5)", says="status 5")
        yield Fault(f"{name} stays behind SIGKILL", f"{code}\nos.kill(os.getpid(), 9)", phase="first", says="SIGKILL")
        yield Fault(f"{name} stays and the model hangs", f"{code}\ntime.sleep(600)", statuses=(LATE,), timeout=STEP)
    for more in ("", ", start_new_session=True"):
        writer = f"subprocess.Popen([sys.executable, '-c', {WRITER!r}], cwd=os.environ['TMPDIR']{more})"
        yield Fault(f"a writer stays{more}", writer, statuses=(OK,))
        yield Fault(f"a writer stays behind os._exit{more}", f"{writer}\ntime.sleep(0.5)\nos._exit(5)")


def _broken_protocol() -> Iterator[Fault]:
    for phase, (name, text) in itertools.product(("build", "first"), GARBAGE.items()):
        statuses = (CRASHED,) if name != "an unknown status" else (CRASHED, FAILED)
        yield Fault(f"{name} in the pipe in {phase}", WRITE.format(text=text), phase=phase, statuses=statuses)
    yield Fault("its pipes are closed", "os.closerange(3, 40)", says="")
    yield Fault("all its descriptors are closed", "os.closerange(0, 40)")
    yield Fault("half a message and the end", WRITE.format(text="b'{\"id\": 2'") + "os._exit(0)")
    yield Fault("its streams are closed", "os.close(1); os.close(2)", statuses=(OK,))
    yield Fault("sys.stdout is closed", "sys.stdout.close(); sys.stderr.close()", statuses=(OK, FAILED, CRASHED))
    yield Fault("print in every phase", "print('x' * 10_000)", phase="first", statuses=(OK,))
    yield Fault("a log of 200 MB", "for _ in range(200): os.write(2, b'log\\n' * 250_000)", statuses=(OK,))
    tumbles = "os.write(2, b'compiler fell over\\n'); os._exit(1)"
    for after in ("module", "build", "load"):
        yield Fault(
            f"the rebuild after a crash of the compiler fails in {after}",
            tumbles,
            phase="first",
            statuses=(FAILED,),
            says=after,
        )


def _files_and_limits() -> Iterator[Fault]:
    for phase, (name, code) in itertools.product(("build", "first", "timed"), FOLDERS.items()):
        yield Fault(f"{name} in {phase}", code, phase=phase, statuses=(CRASHED, FAILED, OK, ""))
    for name, how in (("deleted", "os.remove(path)"), ("cut", "os.truncate(path, 40)")):
        code = DAMAGE.format(how=f"try: {how}\n            except OSError: pass")
        yield Fault(f"its array files are {name}", code, phase="first", statuses=(CRASHED, FAILED, OK))
    greedy = "held = []\nwhile True: held.append(np.ones(20_000_000))"
    for phase in ("build", "first", "timed"):
        yield Fault(f"too much memory in {phase}", greedy, phase=phase, statuses=(FAILED, CRASHED), says="--memory 1",
                    options=("--memory", "1"))  # fmt: skip
    yield Fault(
        "too little memory to start", "", statuses=(FAILED, CRASHED), options=("--memory", "0.005"), says="--memory"
    )
    for size in (0, 200, 800):
        yield Fault(f"no file of the run may be larger than {size} bytes", statuses=("",), limits=(("FSIZE", size),))
    for count in (6, 10, 16, 24):
        yield Fault(f"{count} descriptors for the parent", statuses=("", CRASHED, FAILED, "not-installed", OK),
                    limits=(("NOFILE", count),))  # fmt: skip


def _parents() -> Iterator[Fault]:
    """Signals to the parent, at several lines of its progress."""
    for sent, line in itertools.product(
        ("INT", "TERM", "HUP", "KILL", "STOP"), ("import", "building", "first step", "round")
    ):
        statuses = {"KILL": ("",), "STOP": (OK,)}.get(sent, (FAILED, "", OK))
        options = ("--rerun", "1000000") if sent not in ("STOP",) else ()
        yield Fault(
            f"SIG{sent} to the parent at {line}", "", PARENT, "build", statuses, sent=sent, line=line, options=options
        )
    for sent, (name, code) in itertools.product(("KILL", "TERM"), STAY.items()):
        if sent == "TERM" or ("own" not in name and "daemon" not in name):
            yield Fault(f"SIG{sent} to the parent, and {name} stays", code, SUBJECT, "build", ("", FAILED), sent=sent,
                        line="round", options=("--rerun", "1000000"))  # fmt: skip
