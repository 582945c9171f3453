"""Lines of names.toml that an error about weights proposes: those that fit, and none that does not."""

import re
import sys

import pytest

from xverify.errors import WeightsError
from xverify.weights.arrangement import arrange, read_table
from xverify.weights.arrangement_proposals import advice
from xverify.weights.canonical import check_shapes
from xverify.weights.changes import changes


def layers(blocks, *sizes):
    """The weights of linear layers. blocks: prefixes. sizes: (name, outputs, inputs) of the layers of each."""
    found = {}
    for block in blocks:
        for name, outputs, inputs in sizes:
            found |= {f"{block}{name}.weight": (outputs, inputs), f"{block}{name}.bias": (outputs,)}
    return found


def parsed(text):
    """The lines that a clause proposes, as the table that they are in names.toml."""
    tomllib = pytest.importorskip("tomllib" if sys.version_info >= (3, 11) else "tomli")
    lines = text.split("]: ", 1)[1]
    return tomllib.loads(re.sub(r' \}; (?=")', " }\n", lines))


SEPARATE = layers(
    ("l.0.", "l.1."), *((name, 8, 8) for name in ("q_proj", "k_proj", "v_proj", "o_proj")), ("gate", 6, 8), ("up", 6, 8)
)
FUSED = layers(("h.0.", "h.1."), ("qkv", 24, 8), ("gate_up", 12, 8))
EXPERTS = {f"l.0.e.{i}.{name}.weight": shape for i in range(3) for name, shape in (("w1", (6, 4)), ("w2", (4, 6)))}
STACKED = {"l.0.e.w1": (3, 6, 4), "l.0.e.w2": (3, 4, 6)}


@pytest.mark.parametrize(
    ("unexpected", "missing", "wanted"),
    [
        (SEPARATE, FUSED, {"h.*.qkv": {"fuse": ["l.*.q_proj", "l.*.k_proj", "l.*.v_proj"]},
                           "h.*.gate_up": {"fuse": ["l.*.gate", "l.*.up"]}}),
        (FUSED, SEPARATE, {"l.*.q_proj": {"of": "h.*.qkv", "part": "1/3"}, "l.*.k_proj": {"of": "h.*.qkv", "part": "2/3"},
                           "l.*.v_proj": {"of": "h.*.qkv", "part": "3/3"}, "l.*.gate": {"of": "h.*.gate_up", "part": "1/2"},
                           "l.*.up": {"of": "h.*.gate_up", "part": "2/2"}}),
        (layers([""], ("q", 8, 8), ("k", 4, 8), ("v", 4, 8)), layers([""], ("vkq", 16, 8)), {"vkq": {"fuse": ["v", "k", "q"]}}),
        (layers([""], ("qkv", 16, 8)), layers([""], ("q", 8, 8), ("k", 4, 8), ("v", 4, 8)),
         {"q": {"of": "qkv", "part": "0:8"}, "k": {"of": "qkv", "part": "8:12"}, "v": {"of": "qkv", "part": "12:16"}}),
        (layers([""], ("q", 8, 5), ("k", 8, 5), ("v", 8, 5)), {"c_attn.weight": (5, 24), "c_attn.bias": (24,)},
         {"c_attn.weight": {"fuse": ["q.weight", "k.weight", "v.weight"], "permute": [1, 0]},
          "c_attn.bias": {"fuse": ["q.bias", "k.bias", "v.bias"]}}),
        ({"fc.weight": (3, 5)}, {"fc.weight": (5, 3)}, {"fc.weight": {"of": "fc.weight", "permute": [1, 0]}}),
        (EXPERTS, STACKED, {"l.*.e.w1": {"stack": "l.*.e.*.w1.weight"}, "l.*.e.w2": {"stack": "l.*.e.*.w2.weight"}}),
        (STACKED, EXPERTS, {"l.*.e.*.w1.weight": {"of": "l.*.e.w1", "item": "*"},
                            "l.*.e.*.w2.weight": {"of": "l.*.e.w2", "item": "*"}}),
    ],
    ids=["fused", "split", "in the order of the name", "unequal parts", "transposed, too", "transposed", "stacked", "unstacked"],
)  # fmt: skip
def test_lines_that_fit_are_proposed_and_work(unexpected, missing, wanted):
    text = advice(unexpected, missing, "port")
    assert text.startswith("the shapes fit with, in names.toml under [port.stored]: ")
    assert parsed(text) == wanted
    arrange(wanted, missing, unexpected, "names.toml")  # it raises an error where they do not fit


def norms(*names, size=4):
    """The weights of batch norms."""
    kinds = ("weight", "bias", "running_mean", "running_var")
    return {f"{name}.{kind}": (size,) for name in names for kind in kinds} | {
        f"{name}.num_batches_tracked": () for name in names
    }


IMAGE = (4, 4, 3, 3)


def folded(layer, norm, **more):
    return {"of": layer, "batch_norm": norm, **more}


@pytest.mark.parametrize(
    ("unexpected", "missing", "fitting", "wanted"),
    [
        (norms("l.0.bn1", "l.1.bn1", "l.0.bn2", "l.1.bn2"), {f"l.{i}.conv{k}.bias": (4,) for i in (0, 1) for k in (1, 2)},
         {f"l.{i}.conv{k}.weight": IMAGE for i in (0, 1) for k in (1, 2)},
         {"l.*.conv1": folded("l.*.conv1", "l.*.bn1"), "l.*.conv2": folded("l.*.conv2", "l.*.bn2")}),
        (norms("f.1", "f.4"), {"f.3.bias": (4,)}, {"f.0.weight": IMAGE, "f.0.bias": (4,), "f.3.weight": IMAGE, "f.6.weight": IMAGE},
         {"f.0": folded("f.0", "f.1"), "f.3": folded("f.3", "f.4")}),
        (norms("l.0.bn"), {"l.0.conv.bias": (4,), "l.1.conv.bias": (4,)}, {f"l.{i}.conv.weight": IMAGE for i in (0, 1)},
         {"l.0.conv": folded("l.0.conv", "l.0.bn")}),
        (norms("bn"), {"up.bias": (4,)}, {"up.weight": (5, 4, 3, 3)}, {"up": folded("up", "bn", axis=1)}),
        ({"b1.conv.weight": IMAGE, "b2.conv.weight": IMAGE, **norms("b1.bn", "b2.bn")},
         {f"b.{i}.c.{kind}": shape for i in (0, 1) for kind, shape in (("weight", IMAGE), ("bias", (4,)))}, {},
         {"b.0.c": folded("b1.conv", "b1.bn"), "b.1.c": folded("b2.conv", "b2.bn")}),
    ],
    ids=["in every block", "in a list, one with a bias", "in one block alone", "transposed", "of other names"],
)  # fmt: skip
def test_batch_norms_that_are_folded_are_proposed(unexpected, missing, fitting, wanted):
    text = advice(unexpected, missing, "port", {name: (name, shape) for name, shape in fitting.items()})
    lines, *notes = re.split(r"; (?=add|layers of)", text)
    assert parsed(lines) == wanted
    assert notes[-1] == "add eps = … where a batch norm has another one than 1e-5"
    assert ("layers of one shape are taken in their order" in notes) == ("b.0.c" in wanted)
    reference = unexpected | fitting
    for change in changes(read_table(wanted, "names.toml"), reference, "names.toml"):
        reference[change.name] = change.shape
    arrange(wanted, missing | fitting, reference, "names.toml")  # it raises an error where they do not fit


@pytest.mark.parametrize(
    ("missing", "fitting"),
    [
        ({"conv.bias": (4,), **norms("norm")}, {"conv.weight": IMAGE}),  # the port has a batch norm of another name
        ({"conv.bias": (5,)}, {"conv.weight": (5, 4, 3, 3)}),
        ({}, {"conv.weight": IMAGE}),
    ],
)
def test_no_batch_norm_is_folded_where_none_is_left_out_or_none_fits(missing, fitting):
    text = advice(norms("bn"), missing, "port", {name: (name, shape) for name, shape in fitting.items()})
    assert "batch_norm" not in text


def test_several_lines_that_fit_are_all_shown():
    text = advice(layers([""], ("a", 8, 8), ("b", 8, 8)), layers([""], ("x", 16, 8), ("y", 16, 8)), "port")
    assert text.startswith("the shapes fit with")  # of each layer one
    text = advice(layers([""], ("a", 8, 8), ("b", 8, 8), ("c", 8, 8)), layers([""], ("x", 16, 8)), "port")
    assert text.startswith("several lines fit, and the shapes do not tell which is right")
    assert text.count('"x" = ') == 3


@pytest.mark.parametrize(
    ("unexpected", "missing"),
    [
        ({}, {}),
        (layers([""], ("q", 8, 8), ("k", 8, 8)), layers([""], ("x", 17, 8))),
        ({"a": (3, 4)}, {"b": (5, 4)}),
    ],
)
def test_nothing_is_proposed_that_does_not_fit(unexpected, missing):
    assert advice(unexpected, missing, "port") == ""


def test_the_error_about_weights_shows_them():
    def lines(unexpected, missing):
        return advice(unexpected, missing, "port")

    with pytest.raises(WeightsError) as failure:
        check_shapes(SEPARATE, FUSED, table="port", lines=lines)
    assert '"h.*.qkv" = { fuse = ["l.*.q_proj", "l.*.k_proj", "l.*.v_proj"] }' in str(failure.value)
    assert "give the layers of the model the reference's names" not in str(failure.value)
