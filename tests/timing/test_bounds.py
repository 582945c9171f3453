"""Bounds of a speed on a machine that is too busy to measure it."""

import json
import random
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest
from conftest import write_folder
from helpers.htmlpages import Page
from helpers.sampleresults import RESULT

from xverify.report import numbers
from xverify.results import file
from xverify.timing import bounds
from xverify.timing.bounds import Bounded, Series, at_least, orders, pieces
from xverify.timing.noise import Gate, Moment, explained

CALL = 1e-4  # seconds of an undisturbed call


def disturbed(seed, share, spread=0.01):
    """Series of a subject that another process interrupts in this share of its pieces, for some milliseconds each."""
    generator = random.Random(seed)

    def series():
        stops = [generator.uniform(1e-3, 4e-3) * (generator.random() < share) for _ in range(60)]
        seconds = tuple(10 * CALL * generator.gauss(1, spread) + stop for stop in stops)
        return Series(seconds, 10, sum(stops))

    return [series() for _ in range(bounds.SERIES)]


@pytest.mark.parametrize("share", [0.0, 0.3, 0.8, 0.95, 1.0])
def test_bounds_hold_whatever_is_disturbed(share):
    found = [bounds.bounds(disturbed(seed, share)) for seed in range(200)]
    held = sum(at_least([each.fastest], 1) <= 1 / CALL for each in found)
    assert held >= 0.95 * len(found)
    assert all(each.least is not None and each.least <= CALL for each in found)


def test_the_bound_is_near_the_speed_where_some_pieces_are_undisturbed():
    speeds = [at_least([bounds.bounds(disturbed(seed, 0.8)).fastest], 1) * CALL for seed in range(50)]
    assert min(speeds) > 0.9


def test_a_short_rise_of_the_clock_frequency_does_not_count():
    fast = Series((0.5e-3,) * 5, 10, 0.0)
    found = bounds.bounds([*disturbed(1, 0.5), fast])
    assert at_least([found.fastest], 1) <= 1 / CALL


def test_a_piece_has_about_a_millisecond_and_a_series_is_as_long_as_a_block():
    for seconds in (1e-6, 3e-5, 4e-4):
        calls, count = pieces(seconds)
        assert 1e-3 <= calls * seconds < 2e-3
        assert 0.06 <= count * calls * seconds < 0.063
    assert pieces(0.03) == (1, 2)
    assert pieces(2.0) == (1, 1)


def test_waiting_of_every_thread_and_steal_can_be_disturbance():
    before = Moment(0.0, {"1": (0.0, 1.0)}, 0.0, 2.0, 0.0)
    after = Moment(1.0, {"1": (0.5, 1.2), "2": (0.1, 0.3)}, 1.0, 2.1, 0.0)
    assert explained(before, after) == pytest.approx(0.2 + 0.3 + 0.1)
    assert bounds.bounds([Series((1.0,), 1, 1.5)]).least is None, "disturbance can explain everything"


def test_an_order_is_told_only_where_no_disturbance_explains_the_difference():
    fast, slow, unknown = Bounded("fast", 100.0, 900.0), Bounded("slow", 20.0, 90.0), Bounded("unknown", 50.0, None)
    assert list(orders([slow, fast, unknown])) == [(fast, slow)]
    assert list(orders([fast, Bounded("other", 20.0, 100.0)])) == []


def test_a_bound_is_rounded_to_the_safe_side():
    assert numbers.bound(28_999.0, above=False) == "28,000"
    assert numbers.bound(28_001.0, above=True) == "29,000"
    assert numbers.bound(0.0956, above=False) == "0.095"


@pytest.mark.parametrize("value", [0, -1.5])
def test_a_result_file_with_an_impossible_bound_is_reported_without_it(xverify, tmp_path, value):
    rows = [replace(row, speed=row.speed and replace(row.speed, at_least=value)) for row in RESULT.rows]
    file.write(replace(RESULT, rows=tuple(rows)), tmp_path / "r.json")
    assert json.loads((tmp_path / "r.json").read_text())["rows"][0]["speed"]["at_least"] == value
    done = xverify("report", tmp_path / "r.json", "--details")
    assert done.code in (0, 1), done.err
    assert "at least" not in done.out


@pytest.fixture
def busy(monkeypatch):
    """Every round counts as noisy."""
    monkeypatch.setattr(Gate, "block", lambda gate, before, after: "other processes")


@pytest.mark.usefixtures("in_one_process", "busy")
def test_a_busy_machine_gives_bounds_and_the_next_command(xverify, tmp_path):
    port = write_folder(tmp_path / "port", ("numpy", "honest"))
    done = xverify("run", port, "--subjects", "numpy,honest", "--warmup", "4", "--rerun", "8")
    assert done.code == 0
    speed = done.row("numpy")["speed"]
    assert (speed["verdict"], speed["not_counted"]) == ("REFUSED", "TOO NOISY")
    assert speed["launches"][0]["fastest_seconds"] > 0
    assert speed["at_least"] == pytest.approx(0.95 * 4 / speed["launches"][0]["fastest_seconds"])
    shown = numbers.bound(speed["at_least"], above=False)
    assert f"        numpy: at least {shown} items/s (fastest calls), not a verdict\n" in done.out
    assert f"        on a quiet machine: xverify run {port} --task forward --subjects numpy,honest" in done.out
    assert "stop" not in done.out


@pytest.mark.usefixtures("in_one_process", "busy")
def test_the_bounds_are_on_the_first_screen_of_the_page_and_in_junit(xverify, tmp_path):
    port, page, junit = write_folder(tmp_path / "port", ("numpy", "honest")), tmp_path / "p.html", tmp_path / "j.xml"
    done = xverify(
        "run", port, "--subjects", "numpy,honest", "--warmup", "4", "--rerun", "8", "--html", page, "--junit", junit
    )
    least = done.row("numpy")["speed"]["at_least"]
    says = f"at least {numbers.bound(least, above=False)} items/s"
    first_screen = Page(page.read_text()).text.partition("relative error")[0]
    assert f"TOO NOISY for a verdict on speed; numpy {says}, honest at least " in first_screen
    suite = ET.fromstring(junit.read_text()).find("testsuite")
    assert suite.find("system-out").text.split("\n")[0] == "PASS"
    assert f"numpy: {says} (fastest calls), not a verdict" in suite.find("system-out").text.split("\n")
    assert suite.find("testcase[@name='numpy']/properties/property[@name='fps at least']").get("value") == repr(least)


@pytest.mark.usefixtures("in_one_process", "no_noise")
def test_a_quiet_machine_measures_no_bound(xverify, tmp_path):
    done = xverify("run", write_folder(tmp_path / "port"), "--subjects", "numpy", "--warmup", "4", "--rerun", "8")
    assert done.row("numpy")["speed"]["at_least"] is None
    assert done.row("numpy")["speed"]["launches"][0]["fastest_seconds"] is None
    assert "at least" not in done.out


@pytest.mark.usefixtures("in_one_process", "no_noise")
def test_a_quiet_machine_has_no_bound_in_junit_and_on_the_page(xverify, tmp_path):
    page, junit = tmp_path / "p.html", tmp_path / "j.xml"
    port = write_folder(tmp_path / "port")
    xverify("run", port, "--subjects", "numpy", "--warmup", "4", "--rerun", "8", "--html", page, "--junit", junit)
    assert "at least" not in page.read_text() + junit.read_text()


@pytest.mark.usefixtures("in_one_process", "busy")
def test_a_subject_that_computes_something_else_has_no_bound(xverify, tmp_path):
    port = write_folder(tmp_path / "port", ("numpy",))
    (port / "honest.py").write_text((port / "numpy.py").read_text().replace("return h @", "return 1.01 * h @"))
    done = xverify("run", port, "--subjects", "numpy,honest", "--warmup", "4", "--rerun", "8")
    assert done.row("honest")["speed"]["at_least"] is None
    assert "honest: at least" not in done.out
