"""Ports that hold computed weights: which of them names.toml names, what they are given, and what an error says."""

from pathlib import Path

import numpy as np
import pytest

from xverify.errors import Failed
from xverify.reference.build import Prepared
from xverify.reference.folding import Folding
from xverify.weights import digest, npz

PARTS = {
    "up.weight": ("up.weight_g", "up.weight_v"),
    "blocks.0.conv.weight": ("blocks.0.conv.weight_g", "blocks.0.conv.weight_v"),
    "blocks.10.conv.weight": ("blocks.10.conv.weight_g", "blocks.10.conv.weight_v"),
}


def array(name, *shape):
    return np.full(shape, len(name) / 7, np.float32)


@pytest.fixture
def prepared(tmp_path):
    own = {part: array(part, 2, 3) for parts in PARTS.values() for part in parts} | {"fc.bias": array("fc.bias", 4)}
    npz.save_file(own, tmp_path / "weights.npz")
    npz.save_file({name: array(name, 2, 3) for name in PARTS}, tmp_path / "computed.npz")
    files = [tmp_path / "weights.npz"] * 3
    return Prepared(
        files[0], digest(own), "probe", {name: each.shape for name, each in own.items()}, files[1], files[2], "", "",
        files[0], files[0], {}, computed=PARTS, computed_weights=tmp_path / "computed.npz",
    )  # fmt: skip


def test_entries_name_layers_and_modules_that_hold_layers(prepared):
    def names(*entries):
        return Folding.of(entries, prepared, "tensorflow").names

    assert names() == ()
    assert names("up") == names("up.weight") == ("up.weight",)
    assert names("blocks") == ("blocks.0.conv.weight", "blocks.10.conv.weight")
    assert names("blocks.10") == ("blocks.10.conv.weight",)
    assert names("up", "up") == ("up.weight",)


def test_an_entry_that_names_nothing_is_an_error(prepared):
    with pytest.raises(
        Failed, match=r"\[tensorflow\] lists 'blocks.1' as folded, and the reference computes no weight"
    ):
        Folding.of(["blocks.1"], prepared, "tensorflow")
    with pytest.raises(Failed, match="did you mean 'up'"):
        Folding.of(["upp"], prepared, "tensorflow")


def test_a_port_gets_the_computed_weights_in_place_of_what_they_are_computed_from(prepared, tmp_path):
    folding = Folding.of(["up"], prepared, "tensorflow")
    (tmp_path / "port").mkdir()
    given = npz.load_file(folding.file(prepared.weights, tmp_path / "port"))
    assert set(given) == set(prepared.shapes) - set(PARTS["up.weight"]) | {"up.weight"}
    assert {name: each.shape for name, each in given.items()} == folding.shapes()
    assert np.array_equal(given["up.weight"], array("up.weight", 2, 3))
    assert folding.digest() == digest(given) != prepared.weights_digest
    # A single other value gives another digest.
    given["up.weight"][0, 0] += 1e-6
    assert digest(given) != folding.digest()


def test_a_port_without_folded_weights_gets_the_reference_s_own_file(prepared):
    folding = Folding.of([], prepared, "jittor")
    assert folding.file(prepared.weights, Path("/nowhere")) == prepared.weights
    assert folding.shapes() == prepared.shapes


def test_an_undeclared_computed_weight_is_named_with_the_line_that_declares_it(prepared):
    own = ["up.weight", "blocks.0.conv.weight", "blocks.10.conv.weight_g", "blocks.10.conv.weight_v", "fc.bias"]
    with pytest.raises(Failed) as raised:
        Folding.of([], prepared, "tensorflow").check(own)
    assert str(raised.value) == (
        "tensorflow.py has up.weight, which the reference computes from up.weight_g and up.weight_v: if the port holds the "
        'computed weight, write folded = ["up", "blocks.0.conv"] under [tensorflow] in names.toml; otherwise give its layer '
        "the reference's weights"
    )
    Folding.of(["up", "blocks.0"], prepared, "tensorflow").check(own)
    Folding.of([], prepared, "torch").check(prepared.shapes)
