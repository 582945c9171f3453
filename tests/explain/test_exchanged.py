"""Outputs of layers that a port takes for one another, as hypotheses on the operations behind a tensor."""

import pytest

torch = pytest.importorskip("torch")

from xverify.explain.faults.glue.operands import other_operands  # noqa: E402
from xverify.replay.tape import Tape  # noqa: E402


def attention(q, k, v):
    q, k, v = (each.unflatten(-1, (2, -1)).transpose(1, 2) for each in (q, k, v))
    return (torch.softmax(q @ k.transpose(-1, -2), -1) @ v).transpose(1, 2).flatten(2)


def alternating(q, k, v):
    """The parts of one layer, taken as if they alternated in four groups."""
    return [each.flatten(-2) for each in torch.cat([q, k, v], -1).unflatten(-1, (4, 3, -1)).unbind(-2)]


def in_blocks(q, k, v):
    """The parts of one layer whose parts alternate in four groups, taken as if they followed one another."""
    return torch.stack([each.unflatten(-1, (4, -1)) for each in (q, k, v)], -2).flatten(-3).chunk(3, -1)


def alternated(x):
    """The two halves of each of two heads, alternating."""
    return x.unflatten(-1, (2, 2, -1)).mT.flatten(-3)


def halved(x):
    """The even and then the odd places of each of two heads."""
    return x.unflatten(-1, (2, -1, 2)).mT.flatten(-3)


ROWS = "and the other way round, where one of them has its rows in the other order of rotary embeddings (2 heads)"


@pytest.mark.parametrize(
    ("taken", "kind", "says"),
    [
        (lambda q, k, v: (k, q, v), "tensors exchanged", "takes the output of `q` for that of `k`, and the other way round"),
        (lambda q, k, v: (q, v, k), "tensors exchanged", "takes the output of `k` for that of `v`, and the other way round"),
        (lambda q, k, v: (q, halved(v), alternated(k)), "tensors exchanged",
         f"takes the output of `k` for that of `v`, {ROWS}"),
        (lambda q, k, v: (q, alternated(v), halved(k)), "tensors exchanged",
         f"takes the output of `k` for that of `v`, {ROWS}"),
        (alternating, "parts alternate",
         "takes the outputs of `q`, `k` and `v` as if they alternated in 4 groups, and they follow one another"),
        (in_blocks, "parts in blocks",
         "takes the outputs of `q`, `k` and `v` as if they followed one another, and they alternate in 4 groups"),
    ],
    ids=["q and k", "k and v", "k and v, neighbours", "k and v, halves", "alternating", "in blocks"],
)  # fmt: skip
def test_one_hypothesis_computes_what_the_port_does(taken, kind, says):
    generator = torch.Generator().manual_seed(0)
    outputs = [torch.randn(2, 5, 12, dtype=torch.float64, generator=generator) for _ in range(3)]
    tape = Tape()
    with torch.no_grad(), tape.recording():
        exact = attention(*outputs)
    operations, wanted = tape.behind(exact), attention(*taken(*outputs))
    found = []
    names = {id(output): f"the output of `{name}`" for name, output in zip("qkv", outputs)}
    for rewrite in other_operands(operations, lambda tensor: names.get(id(tensor), ""), outputs[::-1]):
        value = tape.value(exact, rewrite.computes, operations)
        if value is not None and torch.allclose(value, wanted, rtol=1e-12):
            found.append((rewrite.kind, rewrite.says))
    assert found == [(kind, says)]
    assert not torch.allclose(exact, wanted)


def test_outputs_that_were_not_used_are_not_exchanged():
    tape, x = Tape(), torch.ones(2, 4, dtype=torch.float64)
    with torch.no_grad(), tape.recording():
        exact = x * 2 + 1
    other = torch.zeros(2, 4, dtype=torch.float64)
    named = lambda tensor: "the output of `q`" if tensor is other else ""  # noqa: E731
    found = [rewrite.kind for rewrite in other_operands(tape.behind(exact), named, [other])]
    assert not {"tensors exchanged", "parts alternate", "parts in blocks"} & set(found)
