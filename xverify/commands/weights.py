from __future__ import annotations

import argparse
import math
import shutil
from pathlib import Path

from rich.console import Console

from .. import outputs, weights, writing
from ..errors import UsageError, WeightsError
from ..framework import reads
from ..processes.reading import convert_weights, write_weights
from ..processes.space import temporary_folder
from ..reference.exporting import export_onnx
from ..report.terminal import Output
from ..workload.options import named
from ..workload.spec import find_model
from ._arguments import Parser, add

HELP = "convert, digest and compare weight files of frameworks"
GROUP = "models, weights, environments"
EXAMPLE = """examples:
  xverify weights convert jittor.pkl torch.pt
      a state_dict of Jittor becomes a checkpoint of torch
  xverify weights convert torch.pt canonical.safetensors
  xverify weights convert jittor.pkl model.onnx --model resnet50
  xverify weights digest model.onnx torch.pt
      equal digests mean equal weights
  xverify weights diff before.pt after.safetensors
      exit code 1 when they differ
  xverify weights diff converted.onnx model.pt2
      names, the order of axes and folded batch norms may differ"""
EXIT_CODES = {
    0: "done; for diff: the weights are equal",
    1: "the weights differ",
    2: "a wrong command line, or an unusable file",
}


def add_arguments(parser: Parser) -> None:
    below = parser.add_subparsers(title="actions", dest="action", metavar="ACTION", required=True)
    convert = below.add_parser("convert", help="read one format and write another; the suffixes name them")
    convert.add_argument("source", metavar="SOURCE", help="a weight file")
    convert.add_argument("target", metavar="TARGET", help="for .onnx: an exported model, or a new file with --model")
    convert.add_argument(
        "--model", metavar="MODEL|FOLDER", help="the model whose graph a new .onnx file gets (needs torch)"
    )
    digest = below.add_parser(
        "digest", help="print the SHA-256 of the canonical weights: names, shapes, dtypes and bytes"
    )
    digest.add_argument("files", nargs="+", metavar="FILE", help="weight files")
    diff = below.add_parser("diff", help="list every tensor that differs, and how; also those of model files")
    diff.add_argument("left", metavar="LEFT", help="a weight file or a model file")
    diff.add_argument("right", metavar="RIGHT", help="another one, with which it is compared")
    for action in (convert, digest, diff):
        trust = named("trust", help="also read files that can run code when they are read", group="options")
        add(action, [trust, named("max_weights", group="options")])
        if action is convert:
            add(action, [named("force", help="replace TARGET when it exists", group="options")])
        action.set_defaults(action_main=globals()[f"_{action.prog.rsplit(' ', 1)[-1]}"])


def main(args: argparse.Namespace) -> int:
    code: int = args.action_main(args, Output(soft_wrap=True))
    return code


def _convert(args: argparse.Namespace, console: Console) -> int:
    source, target = Path(args.source), Path(args.target)
    if target.exists() and source.exists() and target.samefile(source):
        raise UsageError(f"{target}: source and target are the same file")
    writing.check("TARGET", target)
    weights.written_format(target)
    is_given_weights = target.suffix == ".onnx" and args.model is None  # an exported model, whose graph stays
    kind = "" if is_given_weights else "weights"
    models = [] if args.model is None else reads.of_model("--model", args.model)
    outputs.check([outputs.Output("TARGET", target, kind)], [reads.of_file("SOURCE", source), *models], args.force)
    with temporary_folder() as space:
        on_disk = space / "weights.npz"
        arrays = convert_weights(source, on_disk, args.trust, args.max_weights)
        if target.suffix != ".onnx" and args.model is not None:
            raise UsageError(
                f"--model {args.model}: only an .onnx file holds a graph; leave it out for {target.suffix}"
            )
        written, total = weights.digest(arrays), sum(math.prod(arrays.shape(name)) for name in arrays)
        with writing.replacing(target) as made:
            if args.model is not None:
                _export_with(on_disk, args.model, made)
            else:
                write_weights(on_disk, made, target)
            # The arrays take the place of those of the source, so that the disk has them once.
            read = weights.digest(convert_weights(made, on_disk, most=args.max_weights))
            if written != read:
                raise WeightsError(
                    f"{target}: its digest would be {read} when read back, and that of {source} is {written}"
                )
    console.print(f"{target}: {len(arrays)} tensors, {total:,} parameters, {read} (read back)", markup=False)
    return 0


def _export_with(on_disk: Path, model: str, made: Path) -> None:
    """Write a new ONNX file with the graph of the model, as torch exports it, and the weights of an array file."""
    folder = find_model(model)
    if folder.file("torch") is None:
        raise UsageError(f"--model {model}: it has no torch.py, of which the graph is made; name a model that has one")
    with temporary_folder() as directory:
        exported = export_onnx(folder, directory)
        write_weights(on_disk, exported)
        shutil.copyfile(exported, made)


def _digest(args: argparse.Namespace, console: Console) -> int:
    for file in args.files:
        with temporary_folder() as space:
            arrays = convert_weights(Path(file), space / "weights.npz", args.trust, args.max_weights)
            console.print(f"{weights.digest(arrays)}  {file}", markup=False)
    return 0


def _diff(args: argparse.Namespace, console: Console) -> int:
    from ..checking.weights import read_stored
    from ..weights import comparison, language

    with temporary_folder() as space:
        left = read_stored(Path(args.left), space / "left.npz", args.trust, args.max_weights)
        right = read_stored(Path(args.right), space / "right.npz", args.trust, args.max_weights)
        plain = not language.applies(left, right)
        compared = (comparison if plain else language).compare(left, right)
        digest = "" if compared.lines else weights.digest(left.arrays)
    for line in compared.lines:
        console.print(line, markup=False)
    if compared.different:
        for sentence in compared.sentences:
            console.print(sentence, markup=False)
        console.print(f"{compared.different} of {compared.known} tensors differ")
        return 1
    if compared.lines:
        console.print(f"equal: {_tensors(compared.known)}, {compared.up_to}")
    else:
        console.print(f"identical: {_tensors(len(left.arrays))}, {digest}")
    return 0


def _tensors(count: int) -> str:
    return f"{count} tensor" + "s" * (count != 1)
