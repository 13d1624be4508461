"""
Runs one harness on one answer, for measuring the starter set itself.

Only for texts of our own making: nothing here is contained beyond a time limit.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import cocotb_tools.config
from attrs import frozen

from rlvr_cvdp.toolchain.cocotb_stacks import libpython

from .build import Row


@frozen
class Verdict:
    """What the harness said of an answer."""

    compiles: bool
    passed: int
    total: int
    log: str

    @property
    def is_right(self) -> bool:
        """Every test passed."""
        return self.compiles and 0 < self.total == self.passed


def judge(row: Row, files: Mapping[str, str], timeout_s: float = 20) -> Verdict:
    """Compile the files and run the row's cocotb tests on them, in one launch each."""
    harness = row["harness"]["files"]
    values = dict(re.findall(r"(\w+) *= *(.*)", harness["src/.env"]))
    with tempfile.TemporaryDirectory(prefix="starter_") as folder:
        work = Path(folder)
        for path, text in (*files.items(), *harness.items()):
            (work / path).parent.mkdir(parents=True, exist_ok=True)
            (work / path).write_text(text, encoding="utf-8")
        build = ["iverilog", "-g2012", "-o", "sim.vvp", "-s", values["TOPLEVEL"], *files]
        done = subprocess.run(build, cwd=work, capture_output=True, text=True, check=False)
        if done.returncode:
            return Verdict(False, 0, 0, done.stderr)
        env = {
            "PATH": os.environ["PATH"],
            "HOME": folder,
            "PYTHONPATH": str(work / "src"),
            "COCOTB_TEST_MODULES": values["MODULE"],
            "COCOTB_TOPLEVEL": values["TOPLEVEL"],
            "COCOTB_RANDOM_SEED": "1",
            "COCOTB_RESULTS_FILE": str(work / "results.xml"),
            "TOPLEVEL_LANG": "verilog",
            "LIBPYTHON_LOC": str(libpython() or ""),
            "PYGPI_PYTHON_BIN": sys.executable,
            "PYTHONHOME": sys.base_prefix,
        }
        libs, vvp = cocotb_tools.config.libs_dir, shutil.which("vvp") or "vvp"
        launch = [vvp, "-M", str(libs), "-m", "libcocotbvpi_icarus", "sim.vvp"]
        try:
            done = subprocess.run(
                launch,
                cwd=work,
                env=env,
                capture_output=True,
                text=True,
                timeout=timeout_s,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Verdict(True, 0, 1, "timeout")
        log = done.stdout + done.stderr
    found = re.search(r"TESTS=(\d+) PASS=(\d+) FAIL=(\d+)", log)
    if not found:
        raise RuntimeError(f"The harness of {row['id']} gave no summary:\n{log}")
    return Verdict(True, int(found[2]), int(found[1]), log)
