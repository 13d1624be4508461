"""Each cocotb test's status, message, place and time, as both generations write them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rlvr_cvdp.results import tests as results
from rlvr_cvdp.results.log import Failure, read_failures
from rlvr_cvdp.results.tests import read_tests, shown_tests

XML_2 = """\
<testsuites name="results">
  <testsuite name="all" package="all">
    <property name="random_seed" value="1" />
    <testcase name="passes" classname="test_inc" file="/src/test_inc.py" lineno="5" time="9.8e-05" sim_time_ns="10.0" ratio_time="101803.4" />
    <testcase name="asserts" classname="test_inc" file="/src/test_inc.py" lineno="9" time="0.0004" sim_time_ns="10.0" ratio_time="21399.5">
      <failure error_type="AssertionError" error_msg="y should be 2&#10;but is 00000011" />
    </testcase>
    <testcase name="bare" classname="test_inc" file="/src/test_inc.py" lineno="15" time="0.0002" sim_time_ns="10.0" ratio_time="34836.4">
      <failure error_type="AssertionError" error_msg="" />
    </testcase>
    <testcase name="skipped" classname="test_inc" file="/src/test_inc.py" lineno="26" time="0" sim_time_ns="0" ratio_time="0">
      <skipped />
    </testcase>
    <testcase name="passes_unexpectedly" classname="test_inc" file="/src/test_inc.py" lineno="30" time="2.5e-05" sim_time_ns="1.0" ratio_time="nan">
      <failure error_type="NoneType" error_msg="None" />
    </testcase>
  </testsuite>
</testsuites>"""  # noqa: E501
LOG_2 = """\
     -.--ns INFO     gpi                                ..mbed/gpi_embed.cpp:93   in _embed_init_python              Using Python 3.11.9
     0.00ns INFO     cocotb                             Running on Icarus Verilog version 11.0 (stable)
    10.00ns INFO     cocotb.regression                  running test_inc.asserts (2/8)
    21.00ns WARNING  cocotb.Test asserts.asserts        y should be 2
                                                        but is 00000011
                                                        Traceback (most recent call last):
                                                          File "/src/test_inc.py", line 13, in asserts
                                                            assert int(dut.y.value) == 2, f"y should be 2\\nbut is {dut.y.value}"
                                                                   ^^^^^^^^^^^^^^^^^^^^^
                                                        AssertionError: y should be 2
                                                        but is 00000011
    21.00ns WARNING  cocotb.regression                  test_inc.asserts failed
    32.00ns WARNING  cocotb.Test bare.bare              Traceback (most recent call last):
                                                          File "/src/test_inc.py", line 19, in bare
                                                            assert int(dut.y.value) == 2
                                                                   ^^^^^^^^^^^^^^^^^^^^^
                                                        AssertionError
    32.00ns WARNING  cocotb.regression                  test_inc.bare failed
    36.00ns WARNING  cocotb.regression                  test_inc.passes_unexpectedly failed: passed but we expected a failure
    36.00ns INFO     cocotb.regression                  ****************************
                                                        ** TESTS=8 PASS=1 FAIL=6 SKIP=1                 44.00           0.01       4991.19  **
"""  # noqa: E501
XML_1 = """\
<testsuites name="results">
  <testsuite name="all" package="all">
    <property name="random_seed" value="1001" />
    <testcase name="asserts" classname="test_inc" file="/src/test_inc.py" lineno="9" time="0.0004" sim_time_ns="11.0" ratio_time="24580.3">
      <failure message="Test failed with RANDOM_SEED=1001" />
    </testcase>
    <testcase name="slow" classname="test_inc" file="/home/x/lib/python3.11/site-packages/cocotb/decorators.py" lineno="34" time="0.0001" sim_time_ns="6.0" ratio_time="32430.1">
      <failure message="Test failed with RANDOM_SEED=1001" />
    </testcase>
    <testcase name="last" classname="test_inc" file="/src/test_inc.py" lineno="40" time="0" sim_time_ns="0" ratio_time="nan">
      <failure message="Test failed with RANDOM_SEED=1001" />
    </testcase>
  </testsuite>
</testsuites>
"""  # noqa: E501
LOG_1 = """\
     0.00ns INFO     cocotb                             Running on Icarus Verilog version 11.0 (stable)
    22.00ns INFO     cocotb.regression                  asserts failed
                                                        Traceback (most recent call last):
                                                          File "/src/test_inc.py", line 13, in asserts
                                                            helper.check(dut)
                                                          File "/src/helper.py", line 2, in check
                                                            raise ValueError("odd")
                                                        ValueError: odd
    43.00ns INFO     cocotb.regression                  slow failed
                                                        Traceback (most recent call last):
                                                          File "/home/x/lib/python3.11/site-packages/cocotb/triggers.py", line 1102, in with_timeout
                                                            raise cocotb.result.SimTimeoutError
                                                        cocotb.result.SimTimeoutError
    50.00ns ERROR    cocotb.scheduler                   Failing test at simulator request before test run completion: Simulator shut down prematurely
    50.00ns ERROR    cocotb.regression                  Test error has lead to simulator shutting us down
"""  # noqa: E501
BOMB = (
    '<?xml version="1.0"?><!DOCTYPE b [<!ENTITY a "aaaaaaaaaa">'
    + "".join(f'<!ENTITY a{i} "{f"&a{i - 1};" * 10}">' for i in range(1, 10)).replace("&a0;", "&a;")
    + "]><testsuites><testcase name='&a9;'/></testsuites>"
)


def test_cocotb_2_results():
    """Status, exception, definition, simulated and real time of each test, in order."""
    tests = read_tests(XML_2, 3)
    assert [(t.name, t.status) for t in tests] == [
        ("passes", "passed"),
        ("asserts", "failed"),
        ("bare", "failed"),
        ("skipped", "skipped"),
        ("passes_unexpectedly", "failed"),
    ]
    first, second = tests[:2]
    assert (first.launch, first.module, first.file, first.line) == (
        3,
        "test_inc",
        "src/test_inc.py",
        5,
    )
    assert (first.sim_time_ns, first.seconds) == (10.0, 9.8e-05)
    assert second.message == "AssertionError: y should be 2\nbut is 00000011"
    assert (tests[2].message, tests[4].message) == ("AssertionError", "")


def test_cocotb_2_with_its_log():
    """The log adds the line that raised, and the source of an assertion that has no text."""
    (failures,) = read_failures(LOG_2)
    tests = {t.name: t for t in read_tests(XML_2, 1, failures=failures)}
    assert tests["asserts"].line == 13
    assert tests["asserts"].message == "AssertionError: y should be 2\nbut is 00000011"
    assert tests["bare"].message == "AssertionError: assert int(dut.y.value) == 2"
    assert tests["bare"].line == 19
    assert tests["passes_unexpectedly"].message == "passed but we expected a failure"
    assert tests["passes"].message == ""


def test_cocotb_1_takes_its_messages_from_the_log():
    """1.9 writes no message into the XML; frames of libraries are passed over."""
    (failures,) = read_failures(LOG_1)
    assert [t.message for t in read_tests(XML_1, 1)] == ["", "", ""]
    asserts, slow, last = read_tests(XML_1, 1, failures=failures)
    assert (asserts.message, asserts.file, asserts.line) == ("ValueError: odd", "src/helper.py", 2)
    assert (slow.message, slow.file, slow.line) == ("SimTimeoutError", "", None)
    assert last.message == "Simulator shut down prematurely"


def test_each_simulation_of_a_log_is_its_own():
    """Two launches in one log keep their failures apart."""
    first, second = read_failures(LOG_2 + LOG_1)
    assert "test_inc.bare" in first
    assert "asserts" in second
    assert "asserts" not in first


def test_a_log_line_of_the_design_changes_no_status():
    """A design may print what looks like a failure: the test still passed."""
    forged = (
        LOG_2 + "    40.00ns WARNING  cocotb.regression                  test_inc.passes failed\n"
    )
    (failures,) = read_failures(forged)
    assert failures["test_inc.passes"] == Failure()
    assert read_tests(XML_2, 1, failures=failures)[0].status == "passed"


@pytest.mark.parametrize(
    ("xml", "message"),
    [
        ("", "the simulation left no results"),
        (XML_2[:400], "the results are no XML"),
        ("<testsuites/>", "the simulation left no results"),
        ("\x00\x00", "the results are no XML"),
        (BOMB, "document type"),
        ("<a>" * 30 + "</a>" * 30, "nested too deep"),
        ("<a>" + "<testcase/>" * (results.MAX_TESTS + 1) + "</a>", "more than 20000 tests"),
        (" " * (results.MAX_BYTES) + "<a/>", "more than 8 MB"),
        ("<a>" + "\ud800" + "</a>", "the simulation left no results"),
    ],
    ids=["none", "cut", "empty", "zeros", "bomb", "deep", "many", "huge", "surrogate"],
)
def test_results_of_no_use_are_one_error(xml, message):
    """Broken, empty, huge and hostile results give one test, an error that says why."""
    (test,) = read_tests(xml, 2)
    assert (test.status, test.launch) == ("error", 2)
    assert message in test.message


def test_missing_file_and_endless_file(tmp_path: Path):
    """A path is read up to the limit; one that is not there says what the caller knows."""
    (test,) = read_tests(tmp_path / "none.xml", 1, why_none="the simulator ended with 139")
    assert test.message == "the simulator ended with 139"
    huge = tmp_path / "huge.xml"
    with huge.open("wb") as file:
        file.truncate(3_000_000_000)
    assert "more than 8 MB" in read_tests(huge, 1)[0].message


def test_numbers_and_texts_are_bounded():
    """Odd numbers become 0, long texts are cut, control characters replaced."""
    xml = (
        f"<a><testcase name='{'n' * 999}' lineno='-3' time='inf' sim_time_ns='x'>"
        f"<failure error_type='E' error_msg='{'m' * 9999}&#9;'/></testcase></a>"
    )
    (test,) = read_tests(xml, 1)
    assert (len(test.name), len(test.message)) == (200, 500)
    assert (test.line, test.seconds, test.sim_time_ns) == (None, 0.0, 0.0)


def test_evidence_shows_failing_tests_first_and_counts_the_rest():
    """Of 300 tests 200 are shown in their order, all failing ones among them."""
    cases = [f"<testcase name='t{i}'>{'<failure/>' * (i >= 250)}</testcase>" for i in range(300)]
    shown = shown_tests(read_tests(f"<a>{''.join(cases)}</a>", 1))
    assert shown["tests_left_out"] == 100
    names = [test["name"] for test in shown["tests"]]
    assert names == [f"t{i}" for i in [*range(150), *range(250, 300)]]


@given(st.text(max_size=300), st.text(max_size=300))
def test_no_text_breaks_the_readers(xml, log):
    """Whatever stands in results and log, there is at least one test and no exception."""
    record = "     0.00ns INFO     cocotb                             Running on X\n"
    simulations = read_failures(record + log)
    assert read_tests(xml, 1, failures=simulations[0])
