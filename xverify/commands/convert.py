from __future__ import annotations

import argparse

from ..checking.options import GROUPS, WHAT, CheckDisplay
from ..conversion.options import ConvertSettings, handed_on
from ..report.text import escape
from ..workload.declaration import declared
from . import _arguments
from ._arguments import Parser
from ._results import measured, tell_next

HELP = "convert a model with the frameworks' own converters, and check the file at once"
GROUP = "verify and time"
EXAMPLE = """examples:
  xverify convert resnet18 --to onnx resnet18.onnx
  xverify convert ./my_port --to tflite my_port.tflite --weights trained.pt
      the folder's tensorflow.py with the weights of the reference
  xverify convert ./my_port --quantize int8 --accept "top1>=0.99" int8.onnx
      the suffix tells the format; the figures decide
  xverify convert resnet18 --quantize int8 --keep auto --accept "sqnr>=30" mixed.onnx
      as few layers stay in float32 as the figures need
  xverify convert torch=model.py:build --shape x=1x3x224x224 --to openvino m.xml
  xverify convert trained.keras m.tflite
      a Keras file or a SavedModel; it is its own reference
  xverify convert resnet18 --to onnx --time resnet18.onnx
      also time the file beside the model it was made of
  xverify convert resnet18 --to onnx --exporter dynamo --on onnxruntime,openvino
      --force resnet18.onnx"""

SETTINGS = (*declared(ConvertSettings), *handed_on())
OPTIONS = (*SETTINGS, *(each for each in declared(CheckDisplay) if each.name != "force"))


def add_arguments(parser: Parser) -> None:
    for title in GROUPS:
        parser.group(title)
    parser.group(WHAT).add_argument(
        "model", metavar="MODEL|FOLDER|FILE",
        help="a model of the zoo, a model folder, torch=FILE.py:FUNCTION, which returns a torch module, a Keras file or a "
        "SavedModel",
    )  # fmt: skip
    parser.group(WHAT).add_argument("out", metavar="OUT", help="the file that is written")
    _arguments.add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Convert, check, print the report of the check, and return the exit code of its verdict."""
    from ..conversion.api import convert
    from ..conversion.checked import conclusion
    from ..report import content
    from ..report.progress import progress_listener
    from ..report.style import coloured
    from ..report.terminal import console, report

    asked = _arguments.values(args, OPTIONS)
    with progress_listener(args.quiet) as listener:
        settings = {option.name: asked[option.name] for option in SETTINGS}
        written = measured(lambda: convert(args.model, args.out, json=args.json, listener=listener, **settings))
    result, out = written.result, console()
    if not args.quiet:
        report(result, out, args.nodes, args.details)
    out.print(f"{coloured(content.conclusion(result))} {escape(args.out)}: {escape(conclusion(result, args.accept))}")
    tell_next(written, args, out)
    if written.problem:
        raise written.problem
    return result.exit_code
