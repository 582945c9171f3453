"""Matches the layers of a framework with the reference's, where their names differ, and tells which matches are beyond doubt."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

SAME_NAME, SAME_KIND, SAME_SHAPE = 100, 11, 1  # what a pair of layers is worth
MOST_NAMED = 3  # layers for which a message shows a line of names.toml

# Other frameworks' names of kinds of layers -> torch's, in lower case and without the number of dimensions.
OTHER_KINDS = {
    "einsumdense": "linear", "rmsnormalization": "rmsnorm", "simplernn": "rnn", "simplernncell": "rnncell", "depthwiseconv": "conv",
    "adaptiveaveragepooling": "adaptiveavgpool", "adaptivemaxpooling": "adaptivemaxpool", "reversibleembedding": "embedding",
    "dense": "linear", "convolution": "conv", "transposedconv": "convtranspose", "batchnormalization": "batchnorm",
    "layernormalization": "layernorm", "groupnormalization": "groupnorm", "averagepooling": "avgpool", "maxpooling": "maxpool",
    "globalaveragepooling": "adaptiveavgpool", "globalmaxpooling": "adaptivemaxpool", "upsampling": "upsample",
    "swish": "silu", "hardsilu": "hardswish", "spatialdropout": "dropout", "embed": "embedding", "lineargeneral": "linear",
    "nondynamicallyquantizablelinear": "linear",
}  # fmt: skip
ACTIVATIONS = frozenset({
    "relu", "relu6", "leakyrelu", "prelu", "gelu", "elu", "selu", "celu", "silu", "sigmoid", "hardsigmoid", "hardswish", "tanh",
    "softmax", "logsoftmax", "softplus", "softsign", "mish",
})  # fmt: skip
# Kinds that stand for several of torch's.
GENERIC_KINDS = {
    "activation": ACTIVATIONS,
    "pool": frozenset({"maxpool", "avgpool"}),
    "bidirectional": frozenset({"rnn", "lstm", "gru"}),
    "timedistributed": frozenset({"linear", "conv"}),
    "spectralnormalization": frozenset({"linear", "conv"}),
}
# Kinds that are known beside those: layers of torch, and layers of Keras that are glue code in torch.
KNOWN = frozenset(OTHER_KINDS.values()) | ACTIVATIONS | {
    "flatten", "unflatten", "identity", "dropout", "embedding", "lstm", "lstmcell", "gru", "grucell", "rnn", "instancenorm",
    "conv", "maxpool", "avgpool", "adaptiveavgpool", "adaptivemaxpool",
    "add", "subtract", "multiply", "average", "maximum", "minimum", "concatenate", "concat", "dot", "reshape", "permute",
    "repeatvector", "zeropadding", "cropping", "rescaling", "lambda", "getitem",
    "multiheadattention", "groupedqueryattention", "groupqueryattention", "attention", "additiveattention", *GENERIC_KINDS,
}  # fmt: skip


@dataclass(frozen=True)
class Place:
    """A layer in the order of computation.

    name, kind: its name and class.
    input_shape, output_shape: shapes of its first input and of its first output.
    """

    name: str
    kind: str
    input_shape: tuple[int, ...]
    output_shape: tuple[int, ...]


@dataclass(frozen=True)
class Matching:
    """The layers of a framework that are those of the reference.

    names: canonical name -> the framework's own name, where the two differ and only this pair is possible.
    doubtful: canonical name -> the framework's own names that it may stand for, where more than one matching is as good.
    """

    names: dict[str, str] = field(default_factory=dict)
    doubtful: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def notes(self, table: str) -> Iterator[str]:
        """What to write into names.toml where the matching is in doubt. table: the framework's table in names.toml."""
        if not self.doubtful:
            return
        choices = (f"{name} may be {' or '.join(own)}" for name, own in self.doubtful.items())
        first = {name: own[0] for name, own in list(self.doubtful.items())[:MOST_NAMED]}
        lines = ", ".join(f'"{name}" = "{own}"' for name, own in first.items())
        yield (
            f"order, shape and kind do not tell which layer is which: {'; '.join(choices)}; these layers were checked together "
            "with the glue code around them; to have each checked, write which is which into names.toml under "
            f"[{table}], for example {lines}"
        )


def match(mine: Sequence[Place], theirs: Sequence[Place], channels_last: bool) -> Matching:
    """Match the layers of the reference with those of a framework.

    The match is the best common subsequence: both layers of a pair have the same shapes, and a pair is worth more when they are of
    the same kind (Conv2d, Conv2D), and most when their own names are the same. A pair is doubtful when another matching of equal
    worth has one of its layers in another pair.

    mine, theirs: the layers of the reference and of the framework, in the order of computation.
    channels_last: whether the framework's images are N,H,W,C.
    """
    worth = [[_worth(a, b, channels_last) for b in theirs] for a in mine]
    before, after = _best_before(worth, len(theirs)), _best_after(worth, len(theirs))
    total = after[0][0]
    best = [
        (i, j)
        for i in range(len(mine))
        for j in range(len(theirs))
        if worth[i][j] and before[i][j] + worth[i][j] + after[i + 1][j + 1] == total
    ]
    found = Matching()
    for i, j in best:
        others = [pair for pair in best if (pair[0] == i) != (pair[1] == j)]
        if others:
            own = [theirs[column].name for row, column in best if row == i]
            found.doubtful[mine[i].name] = tuple(own)
        elif mine[i].name != theirs[j].name:
            found.names[mine[i].name] = theirs[j].name
    return found


def _best_after(worth: Sequence[Sequence[int]], columns: int) -> list[list[int]]:
    """[i][j]: the worth of the best matching of the layers from i and from j on."""
    rows = len(worth)
    best = [[0] * (columns + 1) for _ in range(rows + 1)]
    for i in range(rows - 1, -1, -1):
        for j in range(columns - 1, -1, -1):
            pair = worth[i][j] + best[i + 1][j + 1] if worth[i][j] else 0
            best[i][j] = max(pair, best[i + 1][j], best[i][j + 1])
    return best


def _best_before(worth: Sequence[Sequence[int]], columns: int) -> list[list[int]]:
    """[i][j]: the worth of the best matching of the layers before i and before j."""
    turned = _best_after([row[::-1] for row in worth[::-1]], columns)
    return [row[::-1] for row in turned[::-1]]


def _worth(mine: Place, theirs: Place, channels_last: bool) -> int:
    """What a pair is worth; 0 when the two cannot be the same layer."""
    if mine.name == theirs.name:
        return SAME_NAME
    for own, other in ((mine.input_shape, theirs.input_shape), (mine.output_shape, theirs.output_shape)):
        turned = (other[0], other[-1], *other[1:-1]) if channels_last and len(other) > 2 else other
        if own not in (other, turned):
            return 0
    return _worth_of_kinds(_kind(mine.kind), _kind(theirs.kind))


def _worth_of_kinds(mine: str, theirs: str) -> int:
    """What a pair of these kinds is worth: two different kinds are a pair only where neither is known, as classes of a model."""
    if mine == theirs:
        return SAME_KIND
    generic = mine in GENERIC_KINDS.get(theirs, ())
    return SAME_SHAPE if generic or not {mine, theirs} & KNOWN else 0


def _kind(name: str) -> str:
    """The kind of layer that a class is, in lower case; torch's name where it is known."""
    plain = re.sub("[123]d", "", name.lower())
    return OTHER_KINDS.get(plain, plain)
