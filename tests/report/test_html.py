"""The HTML page: what is on it, that it needs no network, and that no name of a model becomes markup."""

import re
from dataclasses import replace

import pytest
from helpers.htmlpages import Page
from helpers.sampleresults import FORWARD, HOSTILE, LAYERS, RESULT, SPEED, hostile, of_files, unusual

from xverify.errors import printable
from xverify.report import conditions, html, terms
from xverify.results.conditions import Settings
from xverify.results.figures import Figures
from xverify.results.layers import told
from xverify.results.precision import LayerCost, Precision, Quantisation
from xverify.results.records import MOST_FAULTS, Error, LayerError, Sample

LARGEST = 3_000_000  # characters


def page(*results):
    return Page(html.page(results))


def known(result):
    """The tags and attributes of a page about a harmless result of the same shape."""
    found = page(result)
    return set(found.elements), {(tag, name) for tag, name, _ in found.attributes}


def test_a_page_has_the_verdict_a_line_for_each_row_and_the_reasons():
    found = page(RESULT)
    text = " ".join(found.text.split())
    assert text.startswith(
        "FAIL: mlp - xverify FAIL mlp, forward, train, batch 32, batch 4 jittor, forward is DIFFERENT: fc2: output has"
    )
    assert "keras-jax, train is DRIFT: eps-hat" in text
    assert "tensorlayer, forward not-installed: pip install tensorlayer" in text
    assert text.index("2026-11-22 10:25 UTC") < text.index("relative error")
    assert [row for row in found.values("class") if row and row.endswith("-edge")].count(
        "bad-edge"
    ) == 4  # two sentences, two rows
    assert "pip install tensorlayer" in text
    assert "DRIFT eps-hat" in text
    assert "1 weights and constants" not in text
    assert "1 of 5 weights and constants: a fault in them would not show on these inputs: eps" in text
    assert "sha256:3" in text
    assert "xverify run mlp --task forward,train --subjects torch:eager,jittor" in text
    assert found.elements.count("figure") == 6  # speed and error, losses, layers of two rows, memory, samples


def test_a_page_needs_no_network_and_no_script():
    text = html.page([RESULT, of_files()])
    found = Page(text)
    assert not {"script", "link", "img", "iframe", "object", "base", "form"} & set(found.elements)
    assert not {"src", "style"} & {name for _, name, _ in found.attributes}
    assert all(target.startswith("#") for target in found.values("href"))
    assert "url(" not in text
    assert "@import" not in text
    assert "default-src 'none'" in text


def test_every_link_leads_to_a_part_of_the_page_and_every_id_is_used_once():
    found = page(RESULT, of_files(), RESULT)
    ids = found.values("id")
    assert len(ids) == len(set(ids))
    targets = [target[1:] for target in found.values("href")]
    assert targets
    assert set(targets) <= set(ids)


def test_the_first_faulty_layer_is_linked_to_its_explanation():
    text = html.page([RESULT])
    assert '<a href="#result1part1row1layer1" aria-label="fc2: R ∞, DIFFERENT">' in text
    assert re.search(r'<li id="result1part1row1layer1">fc2: output has shape \(4, 2\)</li>', text)


def test_a_speed_that_does_not_count_is_struck_out_and_not_drawn():
    refused = replace(FORWARD, speed=replace(SPEED, verdict="REFUSED", reason="noise", not_counted="TOO NOISY"))
    found = page(replace(RESULT, rows=(refused, FORWARD)))
    assert "132,500" in found.struck
    assert "132,500 not counted" in found.text
    assert "there is no ratio: 1." in " ".join(found.text.split())
    assert page(RESULT).struck == ""


def test_several_results_make_a_matrix_of_models_and_subjects():
    found = page(RESULT, of_files())
    text = " ".join(found.text.split())
    assert "runverdictjittorkeras-jaxtensorlayermodel.onnx" in text.replace(" ", "")
    assert "#result2" in found.values("href")
    assert "EQUAL, DIFFERENT" in text


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_text_and_nothing_else(name):
    elements, attributes = known(hostile("harmless"))
    found = page(hostile(HOSTILE[name]))
    assert set(found.elements) <= elements | {"wbr"}, "a long name may be broken"
    assert {(tag, attribute) for tag, attribute, _ in found.attributes} <= attributes
    shown = printable(" ".join(HOSTILE[name][:400].split()))
    assert shown[:300] in found.text
    assert found.text.replace("\n", "").isprintable()


@pytest.mark.parametrize("name", unusual())
def test_unusual_results_have_a_page(name):
    found = page(unusual()[name])
    numbers = [
        value for name in ("x", "y", "d", "cx", "cy", "width", "height", "x1", "x2") for value in found.values(name)
    ]
    assert not any("nan" in value or "inf" in value for value in numbers)
    if name.startswith("no rows"):
        assert "There are no rows: nothing was compared." in found.text


def test_a_large_result_makes_a_page_of_less_than_three_megabytes():
    layers = tuple(
        LayerError(f"block{i}.conv", "Conv2d", 1, 99.0, 9.0, 0.5, "DIFFERENT" if i % 3 else "EQUAL")
        for i in range(3000)
    )
    many = replace(FORWARD.error, layers=replace(LAYERS, layers=layers, compared=3000, known=3000))
    samples = tuple(
        Sample(i, 0, 1, 0.01 + i % 7 / 1e4, i // 9000, "delay" if i % 11 == 0 else None) for i in range(90_000)
    )
    rows = tuple(
        replace(FORWARD, subject=f"torch:{i}", error=many, speed=replace(SPEED, samples=samples)) for i in range(12)
    )
    text = html.page([replace(RESULT, rows=rows)])
    assert len(text) < LARGEST
    assert text.count("<figure>") == 12 + 12 + 2


def test_points_of_a_drawing_are_inside_of_it():
    text = html.page([RESULT, unusual()["no numbers"]])
    points = re.findall(r"[ML](-?[0-9.]+) (-?[0-9.]+)", text)
    assert len(points) > 10
    for x, y in points:
        assert 0 <= float(x) <= 640
        assert 0 <= float(y) <= 260


def test_the_command_says_every_setting_that_is_no_default():
    settings = Settings(
        model="/a b/port", subjects=("torch",), batch=3, threads=2, strict=True, pin=(0, 1), allocator="keep"
    )
    text = page(replace(RESULT, settings=settings, tasks=("forward",))).text
    assert "xverify run '/a b/port' --task forward --subjects torch --batch 3 --strict --threads 2 --pin 0,1" in text


def first_screen(*results):
    """The text before the first table."""
    return " ".join(page(*results).text.split()).partition(" subject ")[0]


def test_a_page_of_forty_models_has_the_failures_first_and_tells_what_they_share_once():
    right = replace(RESULT, verdict="PASS", tasks=("forward",), rows=(replace(FORWARD, error=Error("EQUAL")),))
    many = [replace(right, model=f"model{number}") for number in range(38)]
    wrong = [replace(RESULT, model=name, tasks=("forward",), rows=(FORWARD,)) for name in ("bad", "worse")]
    text = html.page([*many, *wrong])
    said = "bad, forward, batch 32; worse, forward, batch 32: jittor is DIFFERENT: fc2: output has shape (4, 2)"
    assert said in " ".join(Page(text).text.split())
    assert re.search(r'<a href="#result1">bad, ', text)
    assert text.index('<section id="result2">') < text.index("model0, forward, batch 32: <span")


def faulty(*names):
    """A row with a fault in each of these layers."""
    found = [LayerError(name, "Conv2d", 1, 99.0, 9.0, 0.5, "DIFFERENT", explanation=f"pads {name}") for name in names]
    layers = replace(LAYERS, layers=tuple(found))
    reason = "; ".join(told(layers.faults, MOST_FAULTS))
    return replace(FORWARD, error=replace(FORWARD.error, reason=reason, layers=layers))


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["a", "b"], "jittor is DIFFERENT: a: pads a; b: pads b TOO NOISY"),
        (["a", "b", "c"], "jittor is DIFFERENT: a: pads a; b: pads b; and 1 more fault TOO NOISY"),
    ],
    ids=["two", "three"],
)
def test_the_first_screen_tells_two_faults_and_counts_the_others(names, says):
    result = replace(RESULT, tasks=("forward",), rows=(faulty(*names),))
    assert says in first_screen(result)


def test_a_fault_that_is_told_at_its_layer_is_not_told_again_below():
    text = page(replace(RESULT, tasks=("forward",), rows=(faulty("a", "b"),))).text
    assert text.count("pads a") == 2, "on the first screen, and below the layers"
    assert "All reasons" not in text


def test_a_row_at_a_lower_precision_differs_by_the_rounding_to_it():
    half = replace(of_files().rows[0], precision=Precision(name="float16", weights="float16"))
    text = first_screen(replace(of_files(), rows=(half,), verdict="PASS"))
    assert "nothing differs by more than rounding to the precision of the file." in text


def test_a_layer_has_its_name_on_its_bar_and_in_a_table():
    text = html.page([RESULT])
    assert "<title>fc1: R 0.16, EQUAL</title>" in text
    assert '<td>fc1</td><td>Linear</td><td class="right">0.16</td>' in text


def test_layers_that_are_equal_everywhere_have_one_chart():
    equal = replace(LAYERS, layers=LAYERS.layers[:1])
    rows = [replace(FORWARD, subject=f"s{i}", error=Error("EQUAL", layers=equal)) for i in range(5)]
    found = page(replace(RESULT, verdict="PASS", tasks=("forward",), rows=tuple(rows)))
    assert sum("in the order of computation" in (name or "") for name in found.values("aria-label")) == 1
    assert "The layers of s0, s1, s2, s3 are EQUAL, too, and are not drawn." in found.text


def test_terms_explain_themselves_on_hover_and_in_the_legend():
    error = replace(FORWARD.error, detection_limit=1e-5)
    found = page(replace(RESULT, rows=(replace(FORWARD, error=error),)))
    hover = found.values("title")
    for says in (terms.TERMS["residual / noise floor"], terms.TERMS["detection limit"], terms.TERMS["subject"]):
        assert says in hover
        assert says in found.text


def test_what_was_not_tested_is_never_nothing():
    for result in (RESULT, of_files(), *unusual().values()):
        assert list(conditions.untested(result))
    figures = {"logits": Figures(top1=1.0)}
    row = replace(of_files().rows[1], batch=2, figures=figures)
    says = list(conditions.untested(replace(of_files(), rows=(row,))))
    agreement = "top-1 and top-5 are agreement with the reference's best classes on 8 inputs (synthetic, seed 3)"
    assert f"accuracy: {agreement}" in says


def test_the_cost_of_a_quantisation_is_a_table_with_bars():
    costs = Quantisation((LayerCost("conv <1>", "Conv", share=0.6), LayerCost("fc", "Gemm", share=0.4)), known=2)
    rows = (replace(of_files().rows[0]), replace(of_files().rows[1], quantisation=costs))
    found = page(replace(of_files(), rows=rows))
    assert "conv <1>" in found.text
    assert [value for tag, name, value in found.attributes if (tag, name) == ("rect", "width")][-2:] == [
        "60.00%",
        "40.00%",
    ]


def test_the_test_of_a_result_is_named_at_the_top():
    assert "test: tests/test_port.py::test_it" in first_screen(
        replace(RESULT, notes=("test: tests/test_port.py::test_it",))
    )
