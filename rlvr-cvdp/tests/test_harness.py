"""What is read off a harness: services, variables, cocotb generation, packages, plain builds."""

from __future__ import annotations

import pytest

from rlvr_cvdp.datasets.compose import parse_env
from rlvr_cvdp.datasets.harness import cocotb_generation, has_plain_build, needed_packages
from rlvr_cvdp.datasets.rows import parse_row

RUN = ["pytest", "/src/test_runner.py"]


def test_env_files():
    """Blanks, quotes and comments are read as compose reads them."""
    text = "# no\nA = 1\nB=\"x y\"  # c\nC='#z'\nD=p # q\nE=\n =x\nnothing\nF=a=b\n"
    assert parse_env(text) == {"A": "1", "B": "x y", "C": "#z", "D": "p", "E": "", "F": "a=b"}


def test_services(bench):
    """Commands as text, list or shell; several env files; further variables; default folder."""
    compose = """
services:
  a:
    build: .
    env_file: [./src/.env, ./src/.more]
    environment: {X: 1}
    command: /bin/sh -c "pytest -s /src/test_runner.py"
  b:
    image: hdlc/sim:osvb
    env_file: [{path: src/.env}]
    environment: [Y=2]
    working_dir: /code/rundir/
    command: [pytest, /src/lint.py]
"""
    harness = {"docker-compose.yml": compose, "src/.more": "MODULE = other\n", "src/lint.py": "x=1"}
    harness["Dockerfile"] = "FROM hdlc/sim:osvb\n"
    one, two = parse_row(bench.row(harness=harness)).services
    assert one.command == ("/bin/sh", "-c", "pytest -s /src/test_runner.py")
    assert one.environment["MODULE"] == "other"
    assert one.environment["X"] == "1"
    assert (one.runs_cocotb, one.has_plain_build) == (True, True)
    assert two.environment["Y"] == "2"
    assert two.working_dir == one.working_dir == "/code/rundir"
    assert not two.runs_cocotb


@pytest.mark.parametrize(
    ("text", "generation"),
    [
        ("from cocotb_tools.runner import get_runner", 2),
        ("from cocotb.runner import get_runner", 1),
        ("import cocotb.runner", 1),
        ("try:\n    from cocotb_tools.runner import x\nexcept ImportError:\n"
         "    from cocotb.runner import x", 2),
        ("import os", 2),
    ],
)  # fmt: skip
def test_the_problems_own_import_decides_the_generation(text, generation):
    """`cocotb.runner` is cocotb 1, `cocotb_tools.runner` cocotb 2."""
    assert cocotb_generation({"src/test_runner.py": text}) == generation


def test_a_pin_decides_too():
    """A Dockerfile that pins cocotb 1 makes it generation 1."""
    harness = {"src/t.py": "import cocotb", "Dockerfile": "RUN pip install cocotb==1.9.2"}
    assert cocotb_generation(harness) == 1


def test_needed_packages():
    """Only what nobody provides: not the standard library, cocotb, pytest or the harness itself."""
    text = (
        "import os, random, cocotb, pytest, helper\nfrom cocotb.triggers import Timer\n"
        "import numpy as np\nfrom cocotbext.axi import X\nfrom . import y\n"
        "try:\n    import optional\nexcept ImportError:\n    pass\ndef f():\n    import aes\n"
    )
    assert needed_packages({"src/t.py": text, "src/helper.py": ""}) == (
        "aes", "cocotbext.axi", "numpy",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("always=True", 'defines={"X": 1}'),
        ("always=True", 'includes=["/code/rtl"]'),
        ("always=True", 'build_args=["-I/code"]'),
        ("always=True", "**more"),
        ('os.getenv("VERILOG_SOURCES").split()', '["/code/rtl/inc.sv"]'),
        ('os.getenv("VERILOG_SOURCES").split()', 'os.getenv("VERILOG_SOURCES").split() + ["a.v"]'),
        ("runner.build(", "runner.make("),
    ],
)
def test_only_plain_builds_may_be_judged_before_they_run(bench, old, new):
    """A build with defines, includes, arguments or sources of its own is never second-guessed."""
    assert has_plain_build(RUN, {"src/test_runner.py": bench.runner})
    assert not has_plain_build(RUN, {"src/test_runner.py": bench.runner.replace(old, new)})


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_what_only_the_harness_can_compile_still_passes(bench):
    """A design that needs the harness's define does not parse without it, and earns everything."""
    runner = bench.runner.replace("always=True", 'defines={"ONE": 1}, always=True')
    problem = bench.problem(harness={"src/test_runner.py": runner})
    design = bench.right.replace("8'd1", "`ONE")
    assert bench.rtl(design, problem).score01 == 1.0
    assert bench.rtl(design).value == 0.1


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
def test_parameters_that_the_harness_sets_decide_the_elaboration(bench):
    """A design that elaborates only with the harness's parameter passes."""
    runner = bench.runner.replace("always=True", 'parameters={"W": 8}, always=True')
    problem = bench.problem(harness={"src/test_runner.py": runner})
    design = "module inc #(parameter W = 0)(input [W-1:0] a, output [W-1:0] y);\n"
    design += "  if (W == 0) missing m();\n  assign y = a + 1;\nendmodule\n"
    assert bench.rtl(design, problem).score01 == 1.0
