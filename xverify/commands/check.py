from __future__ import annotations

import argparse
from functools import partial

from ..checking.options import GROUPS, WHAT, CheckDisplay, CheckSettings
from ..report.options import Page, Tables
from ..report.outputs import of_results
from ..workload.declaration import declared
from . import _arguments
from . import _outputs as outputs
from ._arguments import Parser
from ._results import measured, tell_next

HELP = "check model files: does the runtime compute what the file says, and does the file say what a reference says"
GROUP = "verify and time"
EXAMPLE = """examples:
  xverify check model.onnx
      does ONNX Runtime compute what the file says?
  xverify check model.onnx --on onnxruntime,openvino,onnxruntime-web:wasm
  xverify check model.onnx --on onnxruntime==1.20.1,onnxruntime==1.23.2
      which version is the first that differs? Environments are made for them
  xverify check model.onnx --sizes batch=1,2,7 seq=1,16,33
      at every combination of these sizes of its open axes
  xverify check model.tflite --against model.onnx
      does the conversion still compute the same?
  xverify check int8.onnx fp16.onnx --against model.onnx --accept "top1>=0.99,sqnr>=30"
      the figures decide, for files in lower precision
  xverify check int8.onnx --against model.onnx --time --effort standard
      also speed and peak memory, in alternation with the reference
  xverify check model.onnx --shape x=1x3x224x224 --input-range 0,1
  xverify check model.onnx --against test_data_set_0
      recorded inputs and outputs
  xverify check model.onnx --against torch=model.py:build --weights trained.pt
      the model before the export, with the weights of the file
  xverify check model.onnx --against my_port
      a model folder, as xverify run takes it
  xverify check decoder.onnx --steps 8 --state present=past
      a sequence of calls
  xverify check model.onnx --reproducer report
      the smallest piece that a wrong runtime computes wrong, to hand in"""

SETTINGS = declared(CheckSettings)
OPTIONS = (*SETTINGS, *declared(Page), *declared(Tables), *declared(CheckDisplay))


def add_arguments(parser: Parser) -> None:
    for title in GROUPS:
        parser.group(title)
    parser.group(WHAT).add_argument(
        "files", metavar="FILE", nargs="+",
        help="model files: .onnx, SavedModel, .keras, .h5, .tflite, TorchScript, .pt2, OpenVINO",
    )  # fmt: skip
    _arguments.add(parser, OPTIONS)


def main(args: argparse.Namespace) -> int:
    """Check the files, print the report, and return the exit code of the verdict."""
    from ..checking.api import check, reads_of
    from ..report.progress import progress_listener
    from ..report.terminal import console, render

    asked = _arguments.values(args, OPTIONS)
    outputs.check(args, OPTIONS, reads_of(args.files, asked), summary=True, force=args.force)
    with progress_listener(args.quiet) as listener:
        settings = {option.name: asked[option.name] for option in SETTINGS}
        written = measured(lambda: check(args.files, json=args.json, force=args.force, listener=listener, **settings))
    out = console()
    show = partial(render, written.result, out, quiet=args.quiet, by_layer=args.nodes, details=args.details)
    problem = outputs.delivered(args, of_results([written.result]), show) or written.problem
    tell_next(written, args, out)
    if problem:
        raise problem
    return written.result.exit_code
