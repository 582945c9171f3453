from __future__ import annotations

import argparse
from pathlib import Path

from ..engine.run import run
from ..errors import UsageError
from ..reference.request import DEVICES, TASKS
from ..report import curves
from ..report.progress import progress_listener
from ..report.terminal import console, render
from ..workload.optimizers import STATE_NAMES

HELP = "verify and time a model in several frameworks"
EXAMPLE = """examples:
  xverify run resnet50                                   every installed framework, by time
  xverify run mlp --subjects torch:eager,jittor --json r.json
  xverify run resnet50 --effort standard --json r.json   with verdicts on speed; --resume goes on after a crash
  xverify run resnet50 --batch 8 --warmup 10 --rerun 100 the Jittor method's setting, literally
  xverify run ./my_port                                  your own folder: spec.py and one file a framework
  xverify run mlp --task train --optimizer adam          whole training steps: gradients, update, statistics, loss curve
  xverify run mlp --task train --curve loss.svg          the loss curves as a picture, too
  xverify run mlp --weights trained.pt --python jittor=envs/jittor/bin/python"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL|FOLDER", help="a model of the zoo (xverify list), or a model folder")
    parser.add_argument("--subjects", metavar="LIST", help="framework[:mode],...; the first is the baseline for ratios")
    parser.add_argument(
        "--task", default="forward", metavar="LIST", help=f"one or more of: {', '.join(TASKS)} (default: forward)"
    )
    parser.add_argument("--batch", type=int, metavar="N", help="items a call (default: the model's own)")
    parser.add_argument("--warmup", type=int, metavar="N", help="exactly N untimed calls first (default: by time)")
    parser.add_argument("--rerun", type=int, metavar="N", help="exactly N timed calls (default: by time)")
    parser.add_argument(
        "--effort",
        default="quick",
        metavar="EFFORT",
        help="quick: one launch, no verdict on speed; standard: 6 to 12 launches; rigorous: 12 to 20 (default: quick)",
    )
    parser.add_argument(
        "--max-seconds", type=float, metavar="S", help="end in so many seconds with what there is by then"
    )
    parser.add_argument("--pin", metavar="LIST", help="cores that the subjects may use, e.g. 0,1 (default: all)")
    parser.add_argument("--threads", type=int, metavar="N", help="threads of every framework (default: all cores)")
    parser.add_argument("--device", default="cpu", metavar="DEVICE", help=f"one of: {', '.join(DEVICES)}")
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of probe weights and inputs (default: 0)"
    )
    parser.add_argument("--cases", type=int, default=4, metavar="N", help="input cases compared (default: 4)")
    parser.add_argument("--weights", metavar="FILE", help="trained weights: .safetensors .npz .pt .pth .pkl .onnx")
    parser.add_argument("--trust", action="store_true", help="read weight files that could run code when they are read")
    parser.add_argument(
        "--python",
        action="append",
        default=[],
        metavar="FRAMEWORK=PATH",
        help="run a framework in another interpreter; may be repeated",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=1800,
        metavar="S",
        help="seconds that one step of a subject may take (default: 1800)",
    )
    learning = parser.add_argument_group("training (--task train)")
    learning.add_argument("--optimizer", metavar="NAME", help=f"one of: {', '.join(STATE_NAMES)} (default: sgd)")
    learning.add_argument("--lr", type=float, metavar="X", help="learning rate (default: torch's)")
    learning.add_argument("--momentum", type=float, metavar="X", help="of sgd (default: 0)")
    learning.add_argument("--nesterov", action="store_true", help="Nesterov's form of the momentum")
    learning.add_argument("--weight-decay", type=float, metavar="X", help="default: torch's, 0.01 for adamw and else 0")
    learning.add_argument(
        "--match-optimizer",
        action="store_true",
        help="compute torch's mathematics exactly in every framework, instead of the framework's own optimizer",
    )
    learning.add_argument(
        "--data", metavar="DIR", help="MNIST (IDX), CIFAR-10 (binary) or PTB (text) files (default: synthetic batches)"
    )
    learning.add_argument(
        "--time-input", action="store_true", help="time the conversion of every batch to the framework's tensors, too"
    )
    learning.add_argument("--curve", metavar="FILE", help="draw the loss curves to FILE.png or FILE.svg")
    parser.add_argument("--json", metavar="FILE", help="write the result file, after every launch and at the end")
    parser.add_argument("--resume", action="store_true", help="go on with the launches that --json FILE lacks")
    parser.add_argument("--details", action="store_true", help="print import, compile and memory figures, too")
    parser.add_argument("--layers", action="store_true", help="print the verdict on every layer, too")
    parser.add_argument("--strict", action="store_true", help="let DRIFT fail, which is else a warning")
    parser.add_argument("--quiet", action="store_true", help="print the verdict's line alone, and no progress")


def main(args: argparse.Namespace) -> int:
    python = {}
    for entry in args.python:
        name, equals, path = entry.partition("=")
        if not equals or not path:
            raise UsageError(f"--python {entry}: write FRAMEWORK=PATH, e.g. jittor=envs/jittor/bin/python")
        python[name] = path
    if args.curve:
        if "train" not in args.task.split(","):
            raise UsageError(f"--curve {args.curve}: there is no loss without --task train")
        curves.check(Path(args.curve))
    with progress_listener(args.quiet) as listener:
        result = run(
            args.model,
            args.subjects.split(",") if args.subjects is not None else None,
            json=args.json,
            resume=args.resume,
            listener=listener,
            task=args.task,
            batch=args.batch,
            warmup=args.warmup,
            rerun=args.rerun,
            effort=args.effort,
            max_seconds=args.max_seconds,
            pin=_cores(args.pin),
            threads=args.threads,
            device=args.device,
            seed=args.seed,
            cases=args.cases,
            weights=args.weights,
            trust=args.trust,
            python=python,
            timeout=args.timeout,
            strict=args.strict,
            optimizer=args.optimizer,
            lr=args.lr,
            momentum=args.momentum,
            nesterov=args.nesterov,
            weight_decay=args.weight_decay,
            match_optimizer=args.match_optimizer,
            data=args.data,
            time_input=args.time_input,
        )
    render(result, console(), quiet=args.quiet, file=args.json, by_layer=args.layers, details=args.details)
    if args.curve and curves.drawable(result):
        curves.draw(result, Path(args.curve))
    elif args.curve:
        console().print(f"{args.curve} is not drawn: no subject came as far as its loss curve", soft_wrap=True)
    return result.exit_code


def _cores(text: str | None) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in text.split(",")) if text is not None else ()
    except ValueError:
        raise UsageError(f"--pin {text}: write cores, e.g. --pin 0,1") from None
