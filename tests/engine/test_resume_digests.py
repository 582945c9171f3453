"""--resume compares what was computed from: the version of xverify, the weights by their digests, and the folder's weights."""

import json
from dataclasses import replace

import numpy as np
import pytest
from conftest import cli, write_folder

from xverify.engine.resume import check_weights, earlier_run
from xverify.errors import UsageError
from xverify.reference.request import resolve
from xverify.results.records import WeightsSummary
from xverify.weights import save_file
from xverify.workload.options import RunSettings


@pytest.fixture(scope="module")
def here(tmp_path_factory):
    """A folder with a result, computed from the weight file a.npz."""
    folder = tmp_path_factory.mktemp("resume")
    write_folder(folder / "port", ("numpy", "honest"))
    shapes = {"fc1.weight": (6, 8), "fc1.bias": (6,), "fc2.weight": (3, 6), "fc2.bias": (3,)}
    for name, value in (("a", 0.1), ("b", 0.2)):
        save_file({key: np.full(shape, value, np.float32) for key, shape in shapes.items()}, folder / f"{name}.npz")
    run = ("--weights", folder / "a.npz", "--rerun", 8, "--json", folder / "r.json")
    assert cli(folder, "run", folder / "port", "--subjects", "numpy", *run).code == 4  # the reference alone
    return folder


def resumed(here, file, weights):
    request, folder = resolve(here / "port", ["numpy"], RunSettings(weights=weights, rerun=8))
    return earlier_run(file, request, folder)


def test_the_same_weights_in_another_place_are_the_same(here, tmp_path):
    copy = tmp_path / "copy.npz"
    copy.write_bytes((here / "a.npz").read_bytes())
    assert resumed(here, here / "r.json", copy) is not None


def test_other_weights_under_the_same_name_are_another_run(here, tmp_path):
    place = tmp_path / "a.npz"
    place.write_bytes((here / "b.npz").read_bytes())
    with pytest.raises(UsageError, match=r"weights_digest was 'sha256:.*', is 'sha256:"):
        resumed(here, here / "r.json", place)
    with pytest.raises(UsageError, match="weights was"):
        resumed(here, here / "r.json", None)


def test_a_result_of_another_version_is_another_run(here, tmp_path):
    values = json.loads((here / "r.json").read_text())
    values["xverify"] = "0.0.9"
    (tmp_path / "old.json").write_text(json.dumps(values))
    with pytest.raises(UsageError, match=r"xverify was '0\.0\.9', is"):
        resumed(here, tmp_path / "old.json", here / "a.npz")


def test_the_canonical_weights_are_compared_when_they_are_known(here):
    earlier = resumed(here, here / "r.json", here / "a.npz")
    mine = WeightsSummary(digest=earlier.result.weights.digest)
    check_weights(earlier, mine)
    with pytest.raises(UsageError, match=r"weights\.digest was 'sha256:.*', is 'sha256:0'"):
        check_weights(earlier, replace(mine, digest="sha256:0"))
