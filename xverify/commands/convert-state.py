from __future__ import annotations

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .. import host, outputs, reading
from ..environments import store as environments
from ..errors import UsageError, nearest
from ..framework import discovery, reads
from ..framework.adapter import Framework
from ..processes.space import temporary_folder
from ..report.progress import progress_listener
from ..report.terminal import Output
from ..results.figures import shown_ratio
from ..results.verdicts import Verdict
from ..training.continuing import LIMIT, STEPS
from ..training.resuming import Asked, Converted, convert, files
from ..verdict.limits import EQUAL_RHO
from ..workload.declaration import Option
from ..workload.options import named
from ..workload.spec import ModelFolder, find_model
from ._arguments import Parser, add, values

HELP = "carry weights and optimizer state to another framework, so that training goes on there"
GROUP = "models, weights, environments"
EXAMPLE = """examples:
  xverify convert-state my_port --from torch=checkpoint.pt --to keras --out resumed.weights.h5
  xverify convert-state my_port --from keras=trained.keras --to torch --out checkpoint.pt
  xverify convert-state my_port --from torch=checkpoint.pt --to optax=state.msgpack
      check a file that another program made: write nothing
  xverify convert-state my_port --from optax=s.msgpack --to torch --out a.pt --optimizer adamw --set lr=0.001 beta2=0.95
      a state of optax does not hold the settings of its optimizer"""
EXIT_CODES = {
    0: "training goes on in the other framework as in the first one, or with a difference that is printed",
    1: "the state or a further step differs",
    2: "a wrong command line, an unusable file, or state that cannot be converted",
    3: "a framework could not run",
}
# What users call a framework -> the adapters that read and write its files. The first one that the folder has is taken.
CALLED = {"keras": ("tensorflow", "keras-torch", "keras-jax"), "optax": ("flax", "jax")}


def _setting(text: str) -> tuple[str, float | bool]:
    name, equals, value = text.partition("=")
    if value.lower() in ("true", "false"):
        return name, value.lower() == "true"
    try:
        if not equals or not name:
            raise ValueError
        return name, float(value)
    except ValueError:
        raise UsageError(f"--set {text}: write NAME=NUMBER, e.g. lr=0.001") from None


OPTIONS = (
    named("optimizer", group="options", task="", unset="what the file of the first framework says"),
    Option(
        "set", Mapping[str, float] | None, None,
        "settings of the optimizer that the file does not say, in torch's terms: lr, momentum, beta1, beta2, eps, ...",
        metavar="NAME=X", parse=_setting, repeatable=True, words=True, unset="the first framework's own defaults",
    ),
    named(
        "weights", group="options", help="the weights, for a file that holds optimizer state alone",
        unset="those of the file", instead=(),
    ),
    named("seed", help="seed of the batches of the further steps", group="options"),
    named("strict", help="count a known difference of the formulas as a failure", group="options"),
    named("force", help="replace the file of --out when it exists", group="options"),
    named("quiet", help="print the verdict alone, and no progress", group="options"),
)  # fmt: skip


def add_arguments(parser: Parser) -> None:
    parser.add_argument("model", metavar="MODEL|FOLDER", help="the model, with a file for each of the two frameworks")
    parser.add_argument(
        "--from", dest="source", required=True, metavar="FRAMEWORK=FILE", help="the file of the training so far"
    )
    parser.add_argument(
        "--to",
        dest="target",
        required=True,
        metavar="FRAMEWORK[=FILE]",
        help="the other framework; with a file, which is only checked",
    )
    parser.add_argument("--out", metavar="FILE", help="the file that is written for the other framework")
    add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    given = values(args, OPTIONS)
    asked = _asked(args, given)
    with progress_listener(args.quiet) as listener, temporary_folder() as space:
        found = convert(asked, space, listener)
    _print(asked, found, args.quiet)
    return int(found.verdict == Verdict.DIFFERENT or (args.strict and found.verdict != Verdict.EQUAL))


def _asked(args: argparse.Namespace, given: dict[str, Any]) -> Asked:
    """What the command line asks for."""
    folder = find_model(args.model)
    (source, file), (target, checked) = _side(folder, "--from", args.source), _side(folder, "--to", args.target)
    if file is None:
        raise UsageError(f"--from {args.source}: name the file, e.g. --from {args.source}=checkpoint")
    if (checked is None) == (args.out is None):
        raise UsageError("give --out FILE to write a file, or --to FRAMEWORK=FILE to check one; one of them")
    if source is target:
        raise UsageError(f"--to {args.target}: both frameworks are {source.name}")
    for flag, path in (("--from", file), ("--to", checked)):
        wrong = "" if path is None else reading.problem(path)
        if wrong:
            raise UsageError(f"{flag} {path}: {wrong}")
    if args.out:
        read = [reads.of_file("--from", file), *reads.of_model("MODEL", args.model)]
        read += [reads.of_file("--weights", given["weights"])] if given["weights"] else []
        written = [outputs.Output("--out", each, "weights") for each in files(target, Path(args.out))]
        outputs.check(written, read, args.force)
    settings = dict(given["set"] or {})
    settings |= {"name": given["optimizer"]} if given["optimizer"] else {}
    weights = Path(given["weights"]) if given["weights"] else None
    out = Path(args.out) if args.out else None
    return Asked(folder, source, target, file, out, checked, weights, settings, given["seed"])


def _side(folder: ModelFolder, flag: str, text: str) -> tuple[type[Framework], Path | None]:
    """The adapter and the file of ``FRAMEWORK=FILE``."""
    name, _, file = text.partition("=")
    known = {each: adapter for each, adapter in discovery.load_all().items() if adapter.trains}
    names = CALLED.get(name, (name,))
    if not set(names) <= known.keys():
        raise UsageError(f"{flag} is {name!r}{nearest(name, [*known, *CALLED])} Known: {', '.join([*CALLED, *known])}")
    present = [known[each] for each in names if folder.file(known[each].reads()) is not None]
    if not present:
        files = " or ".join(dict.fromkeys(f"{known[each].reads()}.py" for each in names))
        raise UsageError(f"{flag} {name}: {folder.name} has no {files}")
    usable = [each for each in present if environments.chosen(each) or not host.missing(each)]
    return (usable or present)[0], Path(file) if file else None


def _print(asked: Asked, found: Converted, quiet: bool) -> None:
    console = Output(soft_wrap=True)
    first, other = asked.source.name, asked.target.name

    def say(text: str) -> None:
        console.print(text, markup=False)

    if not quiet:
        say(f"{asked.file}: {found.optimizer.says()}; {found.parameters} parameters after {found.steps_before} steps")
        if found.assumed:
            said = ", ".join(f"{name}={value:g}" for name, value in found.assumed.items())
            say(f"not in the file, so {first}'s own defaults are taken: {said}")
        for note in found.notes:
            say(note)
        for difference in found.differences:
            say(difference)
        for number, step in enumerate(found.steps, found.steps_before + 1):
            says = f"step {number}: {shown_ratio(step.own, 2)} noise floors ({step.what})"
            by_source = f", {shown_ratio(step.source, 2)} by the formula of {first}" if step.source > EQUAL_RHO else ""
            say(says + by_source)
        say(
            f"after {STEPS} steps in both: {found.apart.name or 'no weight'} of {other} and {first} differs by "
            f"{found.apart.share:.2g} of its change, {shown_ratio(found.apart.ratio, 2)} noise floors; up to {LIMIT:g} is rounding"
        )
        for beside in files(asked.target, asked.out)[1:] if asked.out else ():
            say(f"its weights are in {beside}")
        say(f"go on with {found.call}")
    say(f"{found.verdict.name}: {_conclusion(found, first, other)}")


def _conclusion(found: Converted, first: str, other: str) -> str:
    """The verdict in a sentence. first, other: the frameworks."""
    if found.verdict == Verdict.EQUAL:
        return f"training goes on in {other} as in {first}"
    if found.verdict == Verdict.DIFFERENT:
        return f"training does not go on in {other} as in {first}"
    if max(step.own for step in found.steps) > EQUAL_RHO:
        return f"the state is the same, and a step of {other} is less accurate than rounding explains"
    return f"the state is the same, and {other} goes on by its own formula"
