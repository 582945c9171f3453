"""Tests of ports with pytest: an assertion, and a plugin with a fixture and a report of all results of a test run.

    from xverify.testing import assert_port_equal

    def test_port():
        assert_port_equal("my_port", ["torch:eager", "tensorflow:graph"])

pytest loads the plugin by itself where xverify is installed. It imports the rest of xverify when a test uses it, and not before.
"""

from __future__ import annotations

from .asserting import assert_port_equal

__all__ = ["assert_port_equal"]
