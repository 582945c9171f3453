"""The result file: files of this version and of earlier ones are read into the same records."""

import copy
import json
import math
from dataclasses import fields, replace

import pytest
from helpers.sampleresults import FORWARD, RESULT, TRAINED, earlier

from xverify.errors import UsageError
from xverify.results.conditions import NoiseSummary, Settings
from xverify.results.file import read, write
from xverify.results.records import Sample
from xverify.results.verdicts import Outcome, SpeedVerdict, Verdict
from xverify.workload.optimizers import Optimizer
from xverify.workload.request import Request


@pytest.fixture
def written(tmp_path):
    """Write JSON values to a file."""

    def call(values):
        path = tmp_path / "result.json"
        path.write_text(values if isinstance(values, str) else json.dumps(values))
        return path

    return call


def test_reading_a_file_gives_the_records_that_were_written(tmp_path):
    write(RESULT, tmp_path / "r.json")
    assert read(tmp_path / "r.json") == RESULT
    assert not list(tmp_path.glob("*.tmp"))


def test_a_result_that_is_read_and_written_again_is_the_same_json(written, tmp_path):
    values = RESULT.to_dict()
    write(read(written(values)), tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == values


def test_verdicts_that_are_read_are_members_of_their_enums(written):
    found = read(written(RESULT.to_dict()))
    assert type(found.verdict) is Outcome
    assert type(found.rows[0].speed.verdict) is SpeedVerdict
    assert type(found.rows[0].error.verdict) is type(found.rows[0].error.layers.layers[0].verdict) is Verdict
    assert found.rows[0].error.layers.first.layer == "fc2"


def test_a_file_of_an_earlier_version_reads_with_defaults(written):
    values = earlier(RESULT.to_dict())
    found = read(written(values))
    assert found.rows[1].training == TRAINED.training
    assert found.rows[0].error == replace(FORWARD.error, layers=None, noise_ratio=None, timed_cases=0)
    assert found.rows[0].speed.samples == (Sample(0, 1, 254, 0.067), Sample(1, 0, 254, 0.067))
    assert (found.noise, found.item, found.complete) == (NoiseSummary(), "item", True)
    assert (found.settings.optimizer, found.settings.pin, found.reference.untested) == (None, (), ())

    def kept(old, new):
        """Whether every value of the earlier file is in the new one, under the same name."""
        if isinstance(old, dict):
            return all(name in new and kept(item, new[name]) for name, item in old.items())
        if isinstance(old, list):
            return len(old) == len(new) and all(map(kept, old, new))
        return old == new

    del values["reference"]["weights_source"]
    assert kept(values, found.to_dict())


def test_either_name_of_a_renamed_field_is_read(written):
    both = RESULT.to_dict()
    learnt = both["rows"][1]["training"]
    assert learnt["rungs"] == learnt["checks"]
    assert both["settings"]["optimizer"]["forms"] == both["settings"]["optimizer"]["variants"] == ["eps-hat"]
    new, old = copy.deepcopy(both), copy.deepcopy(both)
    del new["rows"][1]["training"]["rungs"], new["settings"]["optimizer"]["forms"]
    del old["rows"][1]["training"]["checks"], old["settings"]["optimizer"]["variants"]
    assert read(written(new)) == read(written(old)) == RESULT


# New name -> the name that files of the first version have. An entry stays for as long as such files are read.
RENAMED = {"checks": "rungs", "variants": "forms", "dropout_disabled": "held"}


def test_every_renamed_field_is_written_under_both_names_and_read_from_the_earlier_one(written):
    seen = set()

    def with_earlier_names_alone(value):
        if isinstance(value, list):
            return [with_earlier_names_alone(each) for each in value]
        if not isinstance(value, dict):
            return value
        found = RENAMED.keys() & value.keys()
        seen.update(name for name in found if value[name])
        assert all(value[RENAMED[name]] == value[name] for name in found)
        return {name: with_earlier_names_alone(each) for name, each in value.items() if name not in found}

    assert read(written(with_earlier_names_alone(RESULT.to_dict()))) == RESULT
    assert seen == set(RENAMED), "a field that is empty in RESULT would be read back as its default"


def test_numbers_that_json_cannot_write_keep_their_meaning(written):
    curve = replace(TRAINED.training.curve, losses=(2.3, math.inf), verdict=Verdict.INVALID)
    row = replace(TRAINED, training=replace(TRAINED.training, curve=curve))
    values = replace(RESULT, rows=(FORWARD, row), timeline={"total_seconds": math.nan}).to_dict()
    assert values["rows"][0]["error"]["layers"]["layers"][1]["ratio"] is None
    found = read(written(values))
    layer = found.rows[0].error.layers.layers[1]
    assert (layer.ratio, layer.channel_ratio, layer.input_ratio) == (math.inf, math.inf, 0.5)
    assert found.rows[1].training.curve.losses[0] == 2.3
    assert not math.isfinite(found.rows[1].training.curve.losses[1])
    assert math.isnan(found.timeline["total_seconds"])
    assert found.rows[0].speed.ratio_ci == (None, None)
    assert found.to_dict() == values


def changed(*path, value):
    values = RESULT.to_dict()
    place = values
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return values


@pytest.mark.parametrize(
    ("values", "says"),
    [
        (json.dumps(RESULT.to_dict())[:700], "no JSON file, or only a part of one"),
        ("", "no JSON file"),
        ("[1]", "no result of xverify run"),
        ({"schema_version": 1}, "no result of xverify run"),
        (changed("schema_version", value=2), "has schema version 2; this xverify reads 1"),
        (changed("rows", 0, "speed", "fps", value="fast"), r"got `str` - at `\$.rows\[0\].speed.fps`"),
        (changed("rows", 0, "speed", "samples", 1, "calls", value=1.5), r"at `\$.rows\[0\].speed.samples\[1\].calls`"),
        (changed("rows", 0, "error", "verdict", value="FINE"), r"'FINE' - at `\$.rows\[0\].error.verdict`"),
        (changed("rows", 0, "error", "verdict", value=None), r"got `null` - at `\$.rows\[0\].error.verdict`"),
        (changed("rows", 2, "memory", value=3), r"at `\$.rows\[2\].memory`"),
        (changed("settings", "optimizer", value="adam"), r"at `\$.settings.optimizer`"),
        ({k: v for k, v in RESULT.to_dict().items() if k != "rule"}, "missing required field `rule`"),
    ],
)
def test_a_file_that_is_no_result_is_refused_with_the_wrong_field(written, values, says):
    with pytest.raises(UsageError, match=says) as caught:
        read(written(values))
    assert "result.json" in str(caught.value)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(UsageError, match="No such file"):
        read(tmp_path / "none.json")
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xff"}')
    with pytest.raises(UsageError, match="no JSON file"):
        read(tmp_path / "latin.json")


def test_every_setting_of_a_request_is_a_setting_of_the_file():
    adam = Optimizer("adam", variants=("eps-hat",))
    request = Request(model="mlp", subjects=("torch:eager",), reference="torch", batch=4, threads=2, optimizer=adam)
    settings = Settings.of(request, "sha256:1")
    assert {each.name for each in fields(settings)} == {
        *(each.name for each in fields(request)),
        "folder_digest",
        "weights_digest",
        "port_digests",
    }
    assert (settings.optimizer, settings.batch, settings.folder_digest) == (adam, 4, "sha256:1")
