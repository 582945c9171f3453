import math

import pytest

from xverify.report import numbers


@pytest.mark.parametrize(
    ("write", "value", "text"),
    [
        (numbers.figure, 142_876.0, "142,900"),
        (numbers.figure, 999.96, "1000"),
        (numbers.figure, 6.6021, "6.602"),
        (numbers.published, 2169.0, "2,169"),
        (numbers.published, 80.5, "80.5"),
        (numbers.seconds, 0.0012733, "0.00127"),
        (numbers.seconds, 2.0, "2"),
        (numbers.significant, 26.24, "26.2"),
        (numbers.whole, 1913.7, "1,914"),
        (numbers.decimals, 0.4666, "0.47"),
        (numbers.error, 3.96e-7, "4.0e-07"),
        (numbers.ratio, 0.0, "0"),
        (numbers.ratio, 0.162, "0.16"),
        (numbers.ratio, 12_345.6, "12,300"),
        (numbers.ratio, math.inf, "∞"),
        (numbers.ratio, 153.2, "153"),
        (numbers.ratio, 1_636_851.0, "1,640,000"),
        (numbers.ratio, math.nan, "NaN"),
        (numbers.duration, 59.2, "60 s"),
        (numbers.duration, 7200.0, "2 h"),
    ],
)
def test_numbers_are_written_in_their_format(write, value, text):
    assert write(value) == text


@pytest.mark.parametrize(
    "write",
    [numbers.figure, numbers.seconds, numbers.significant, numbers.whole, numbers.decimals, numbers.error],
)
def test_a_number_that_is_absent_is_a_dash(write):
    assert write(None) == "-"


def test_a_ratio_has_its_interval_where_both_ends_are_known():
    assert numbers.time_ratio(1.1, 1.08, 1.12) == "1.100 (1.080–1.120)"
    assert numbers.time_ratio(1.1, None, 1.12) == numbers.time_ratio(1.1) == "1.100"
