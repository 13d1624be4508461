"""Launches of a harness that does not wait for them: each keeps its own result, none hangs."""

from __future__ import annotations

import time

import pytest

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

IMPATIENT = """\
import os, subprocess
from cocotb_tools.runner import get_runner
from cocotb_tools.config import libs_dir

def start(name, wait):
    env = {**os.environ, "COCOTB_TEST_MODULES": "test_inc", "COCOTB_TOPLEVEL": "inc",
           "PYGPI_PYTHON_BIN": os.sys.executable, "TOPLEVEL_LANG": "verilog",
           "COCOTB_RESULTS_FILE": f"/code/rundir/{name}.xml", "NAME": name}
    return subprocess.run(["vvp", "-M", str(libs_dir), "-m", "libcocotbvpi_icarus",
                           "/code/rundir/build/sim.vvp", "-none"], env=env, timeout=wait).returncode

def build():
    get_runner("icarus").build(sources=["/code/rtl/inc.sv"], hdl_toplevel="inc", always=True,
                               build_dir="build", timescale=("1ns", "1ns"))

def test_runner():
    build()
"""
HANG = "initial forever begin end\n"


def _with(bench, body: str):
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return bench.problem(harness={"src/test_runner.py": IMPATIENT + lines})


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_a_launch_that_the_harness_gives_up_is_a_wrong_answer(bench):
    """A harness with a time limit of its own kills a design that hangs: wrong, and soon."""
    problem = _with(bench, 'assert start("a", 0.6) == 0')
    begun = time.monotonic()
    reward = bench.rtl(bench.right.replace("endmodule", HANG + "endmodule"), problem)
    assert reward.score01 == 0.0
    assert "exited with 1" in reward.evidence["why"], reward.evidence
    assert time.monotonic() - begun < 15


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_what_is_left_running_does_not_hold_the_service(bench):
    """A launch that nobody waits for ends with its service."""
    body = """\
from threading import Thread
import time
Thread(target=start, args=("b", None), daemon=True).start()
time.sleep(0.6)
print("leaving", flush=True)
os._exit(1)
"""
    problem = _with(bench, body)
    begun = time.monotonic()
    reward = bench.rtl(bench.right.replace("endmodule", HANG + "endmodule"), problem)
    assert reward.score01 == 0.0
    assert time.monotonic() - begun < 15


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_a_launch_after_one_that_was_given_up_gets_its_own_status(bench):
    """What was meant for a launch that was killed is not told to the next one."""
    body = """\
for _ in range(4):
    try:
        start("slow", 0.7 if not _ else 5)
    except subprocess.TimeoutExpired:
        import time
        time.sleep(0.8)
assert start("a", 5) == 0
"""
    test = bench.test.replace(
        "    for a in range(4):",
        """\
    import os, time
    if os.environ["NAME"] == "slow" and not os.path.exists("/tmp/once"):
        open("/tmp/once", "w").close()
        time.sleep(100)
    for a in range(4):""",
    )
    runner = IMPATIENT + "".join(f"    {line}\n" for line in body.splitlines())
    problem = bench.problem(harness={"src/test_runner.py": runner, "src/test_inc.py": test})
    reward = bench.rtl(bench.right, problem, idle_s=3.0)  # an honest harness that waits
    assert reward.score01 == 1.0, reward.evidence


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_many_side_by_side(bench, place):
    """Twelve launches, six at once: each is served, and each is told its own end."""
    count = 6 if place == "fresh" else 12  # more than a warm worker has places for replies
    body = f"""\
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(6) as pool:
    assert set(pool.map(lambda n: start(f"n{{n}}", 30), range({count}))) == {{0}}
"""
    reward = bench.rtl(bench.right, _with(bench, body))
    assert reward.score01 == 1.0, reward.evidence
    assert reward.evidence["services"][0]["launches"] == count


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_a_warm_worker_has_loaded_what_each_command_needs(bench):
    """Our pytest plugin is loaded before the fork: no command compiles and rewrites it again."""
    body = """\
import sys
loader = type(sys.modules["rlvr_probe"].__loader__).__name__
assert loader == "SourceFileLoader" or not os.path.exists("/rlvr/run/ask"), loader
assert start("a", 60) == 0
"""
    reward = bench.rtl(bench.right, _with(bench, body))
    assert reward.score01 == 1.0, reward.evidence
