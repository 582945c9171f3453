"""Decoders on ONNX Runtime and OpenVINO: exports and files are EQUAL in every way, and faults in files are found at their node."""

import json
import shutil

import pytest
from helpers.decoderfiles import FAMILIES, changed, exported, renamed
from helpers.decoders import LLAMA, checks, folder

WAYS = [
    "full pass", "full pass, alone", "steps", "steps, alone", "chunks of 5, 3, 1", "3 tokens taken back", "sequences reordered",
    "padded right", "padded left", "padded left, steps", "greedy, free",
]  # fmt: skip


def decode(xverify, model, result, subject, *options):
    """(how ``xverify run --task decode`` ended, the row of the result's last subject)."""
    command = ["run", str(model), "--task", "decode", "--subjects", subject, "--json", str(result), *options]
    ended = xverify(*command)
    return ended, json.loads(result.read_text())["rows"][-1] if result.is_file() else None


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gpt2", "gemma2", "mixtral", "whisper"])
def test_export_of_a_family_is_equal_in_every_way(tmp_path, xverify, family):
    result = tmp_path / "result.json"
    ended, _ = decode(xverify, FAMILIES / family, result, "onnxruntime,openvino")
    assert ended.code == 0, ended.out
    rows = json.loads(result.read_text())["rows"]
    assert [row["framework"] for row in rows] == ["onnxruntime", "openvino"]
    for row in rows:
        assert [name for name in WAYS if name not in checks(row)] == []
        assert {each["verdict"] for each in checks(row).values()} == {"EQUAL"}
        assert row["decoding"]["not_tried"] == {}


@pytest.mark.slow
def test_export_of_the_newer_exporter_is_equal_in_every_way(tmp_path, xverify):
    ended, row = decode(xverify, folder(tmp_path / "llama", LLAMA), tmp_path / "result.json", "onnxruntime:basic")
    assert ended.code == 0, ended.out
    assert "by torch's newer exporter" in ended.out
    assert {each["verdict"] for name, each in checks(row).items() if name in WAYS} == {"EQUAL"}


@pytest.mark.slow
def test_export_of_an_encoder_is_equal_in_every_way_without_a_cache(tmp_path, xverify):
    ended, row = decode(xverify, FAMILIES / "bert", tmp_path / "result.json", "onnxruntime")
    assert ended.code == 0, ended.out
    assert {name for name, each in checks(row).items() if each["verdict"] == "EQUAL"} > {"padded right", "padded left"}
    assert "it has no cache, such as past.0 and present.0" in row["decoding"]["not_tried"]["steps"]


@pytest.mark.slow
def test_decoder_whose_cache_is_a_state_says_why_it_has_no_export(tmp_path, xverify):
    ended, row = decode(xverify, FAMILIES / "mamba", tmp_path / "result.json", "onnxruntime")
    assert ended.code == 3
    assert row["status"] == "unsupported"
    assert "no axis that grows with the tokens" in row["reason"]


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return exported(tmp_path_factory.mktemp("llama"))


def of_file(xverify, file, result, family="llama", runtime=""):
    weights = str(file.with_name("weights.pt"))
    return decode(xverify, FAMILIES / family, result, f"port={runtime}{file}", "--weights", weights)


@pytest.mark.slow
def test_file_with_a_cache_of_the_encoder_is_judged_in_every_way(tmp_path, xverify):
    file = exported(tmp_path, "whisper")
    ended, row = of_file(xverify, file, tmp_path / "result.json", "whisper")
    assert ended.code == 0, ended.out
    assert {checks(row)[name]["verdict"] for name in WAYS} == {"EQUAL"}
    ended, row = of_file(xverify, changed(file, "other states"), tmp_path / "wrong.json", "whisper")
    assert ended.code == 1
    assert checks(row)["steps"]["place"] == "node `/layers.0/encoder_attn/MatMul`"
    says = "`cross_attention_cache.layers.0.keys` of the cache had its rows in the opposite order"
    assert says in checks(row)["steps"]["explanation"]


@pytest.mark.slow
def test_right_file_is_equal_in_every_way(tmp_path, xverify, file):
    ended, row = of_file(xverify, file, tmp_path / "result.json")
    assert ended.code == 0, ended.out
    assert {checks(row)[name]["verdict"] for name in WAYS} == {"EQUAL"}
    assert (row["weights_digest"], row["weights_route"]) == (None, "of decoder.onnx")


# Fault -> the first way that shows it, the node that differs first there, and the cause.
FOUND = {
    "late": ("steps", "/model/rotary_emb/Cast", "it behaves as if positions after a cache were one too large"),
    "unmasked": ("padded left", "/model/layers.0/self_attn/MatMul_1", "it behaves as if padding was not masked"),
    "other row": (
        "steps",
        "/model/layers.0/self_attn/MatMul_1",
        "layers.0.keys` of the cache had its rows in the opposite",
    ),
    "stale": ("steps", "/model/layers.0/self_attn/MatMul_1", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("fault", FOUND)
def test_fault_in_a_file_is_found_with_step_and_node(tmp_path, xverify, file, fault):
    way, node, cause = FOUND[fault]
    ended, row = of_file(xverify, changed(file, fault), tmp_path / "result.json")
    assert ended.code == 1, ended.out
    found = checks(row)
    assert found["full pass"]["verdict"] == "EQUAL"
    assert next(name for name, each in found.items() if each["verdict"] != "EQUAL") == way
    assert (found[way]["verdict"], found[way]["place"]) == ("DIFFERENT", f"node `{node}`")
    assert found[way]["step"] is not None
    assert cause in found[way]["explanation"]


@pytest.mark.slow
def test_fault_in_a_file_is_found_on_openvino(tmp_path, xverify, file):
    way, node, cause = FOUND["late"]
    ended, row = of_file(xverify, changed(file, "late"), tmp_path / "result.json", runtime="openvino:")
    assert ended.code == 1, ended.out
    assert row["framework"] == "openvino"
    assert (checks(row)[way]["verdict"], checks(row)[way]["place"]) == ("DIFFERENT", f"node `{node}`")
    assert cause in checks(row)[way]["explanation"]
    assert checks(row)["full pass"]["verdict"] == "EQUAL"


@pytest.mark.slow
def test_cache_in_another_precision_is_told(tmp_path, xverify, file):
    ended, row = of_file(xverify, changed(file, "narrow"), tmp_path / "result.json")
    assert ended.code == 1
    assert checks(row)["steps"]["verdict"] == "DIFFERENT"
    told = checks(row)["steps"]["says"]
    assert "as if the cache was rounded to float16; the cache holds float16, and the graph returns float32" in told


@pytest.mark.slow
def test_cache_of_more_sequences_is_told(tmp_path, xverify, file):
    ended, row = of_file(xverify, changed(file, "doubled"), tmp_path / "result.json")
    assert ended.code == 1
    says = "after 1 tokens of 3 sequences, present.0 has shape (6, 2, 1, 12), and past.0 needs (3, 2, 1, 12)"
    assert (checks(row)["steps"]["verdict"], checks(row)["steps"]["says"]) == ("INVALID", says)
    assert checks(row)["full pass"]["verdict"] == "EQUAL"


@pytest.mark.slow
def test_operator_without_float64_leaves_the_places_before_it(tmp_path, xverify, file):
    ended, row = of_file(xverify, changed(file, "unknown"), tmp_path / "result.json")
    assert ended.code == 1
    assert checks(row)["full pass"]["verdict"] == "EQUAL"
    assert checks(row)["steps"]["place"] == "node `/model/rotary_emb/Cast`"


def paired(path, cache):
    """The folder of Llama with the pairs of a cache in its spec."""
    shutil.copytree(FAMILIES / "llama", path)
    spec = path / "spec.py"
    spec.write_text(spec.read_text().replace("ModelSpec(\n", f"ModelSpec(\n    cache={cache},\n"))
    return path


@pytest.mark.slow
def test_cache_whose_names_say_nothing_is_paired_by_the_spec(tmp_path, xverify):
    file = exported(tmp_path)
    cache, weights = renamed(file), ("--weights", str(file.with_name("weights.pt")))
    ended, row = decode(xverify, FAMILIES / "llama", tmp_path / "without.json", f"port={file}", *weights)
    assert ended.code == 3
    assert "or name the pairs with cache={INPUT: OUTPUT} in the spec" in row["reason"]
    ended, row = decode(xverify, paired(tmp_path / "right", cache), tmp_path / "right.json", f"port={file}", *weights)
    assert ended.code == 0, ended.out
    assert {checks(row)[name]["verdict"] for name in WAYS} == {"EQUAL"}
    crossed = dict(zip(cache, [*cache.values()][2:] + [*cache.values()][:2]))
    ended, row = decode(xverify, paired(tmp_path / "wrong", crossed), tmp_path / "wrong.json", f"port={file}", *weights)
    assert ended.code == 1
    assert checks(row)["steps"]["verdict"] == "DIFFERENT"
    assert checks(row)["full pass"]["verdict"] == "EQUAL"


@pytest.mark.parametrize(
    ("cache", "says"),
    [
        ({"helt": "made"}, "input 'helt', and a.onnx has no such input; did you mean 'held'? Its inputs: ids, held"),
        ({"held": "mode"}, "output 'mode', and a.onnx has no such output; did you mean 'made'? Its outputs: logits, made"),
        ({"held": "made", "ids": "made"}, "cache gives the output 'made' to two inputs"),
        (["held"], "cache is ['held']: write a mapping, e.g. cache={'k0': 'k0_out'}"),
    ],
)  # fmt: skip
def test_wrong_names_of_a_cache_are_told_in_one_line(tmp_path, xverify, cache, says):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("torch")
    inputs, outputs = (
        [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [1]) for name in names]
        for names in (("ids", "held"), ("logits", "made"))
    )
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "empty", inputs, outputs)), tmp_path / "a.onnx")
    subject = f"port={tmp_path / 'a.onnx'}"
    ended, row = decode(xverify, paired(tmp_path / "m", cache), tmp_path / "r.json", subject, "--weights", "own")
    assert (ended.code, row) == (2, None)
    assert says in ended.err


@pytest.mark.slow
def test_other_base_in_a_file_is_found_by_the_layers(tmp_path, xverify, file):
    ended, row = of_file(xverify, changed(file, "base"), tmp_path / "result.json")
    assert ended.code == 1
    assert checks(row)["full pass"]["verdict"] == "DIFFERENT"
    assert checks(row)["full pass"]["place"] == ""
    assert "between `model.layers.0.self_attn.v_proj` and `model.layers.0.self_attn.o_proj`" in ended.out


@pytest.mark.slow
def test_embedding_that_computes_its_positions_is_judged_by_what_it_returns(xverify):
    """Whisper gives its embedding of positions the tokens, and a graph gives the lookup the positions."""
    pytest.importorskip("onnxruntime")
    ended = xverify("run", FAMILIES / "whisper", "--subjects", "onnxruntime", "--no-timing")
    assert ended.code == 0, ended.out
    assert " 31/31  EQUAL" in ended.out


def test_file_without_its_weights_asks_for_them(tmp_path, xverify):
    onnx = pytest.importorskip("onnx")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], [])), tmp_path / "a.onnx")
    ended = xverify("run", str(FAMILIES / "llama"), "--task", "decode", "--subjects", f"port={tmp_path / 'a.onnx'}")
    assert ended.code == 2
    assert "an ONNX file keeps its own weights" in ended.err
    assert "--weights FILE" in ended.err


def test_file_on_a_framework_that_runs_none_is_refused(tmp_path, xverify):
    onnx = pytest.importorskip("onnx")
    onnx.save(onnx.helper.make_model(onnx.helper.make_graph([], "empty", [], [])), tmp_path / "a.onnx")
    subject = f"port=torch:{tmp_path / 'a.onnx'}"
    ended = xverify("run", str(FAMILIES / "llama"), "--task", "decode", "--subjects", subject, "--weights", "own")
    assert ended.code == 2
    assert "torch builds models from code, and runs no ONNX files" in ended.err
