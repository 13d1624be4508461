from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from .conftest import BENCHMARKS


@pytest.mark.docker
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.integration
def test_the_official_runner_and_ours_agree_on_starter_problems(starter_rows: Path) -> None:
    """With a checkout at hand, verdicts are equal or the differences explained."""
    checkout = os.environ.get("CVDP_OFFICIAL")
    if not checkout:
        pytest.skip("CVDP_OFFICIAL names no checkout of NVlabs/cvdp_benchmark (docs/parity.md)")
    words = ["--official", checkout, "--dataset", str(starter_rows), "--mutants", "1", "--json"]
    words += ["--official-python", os.environ.get("CVDP_OFFICIAL_PYTHON", sys.executable)]
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / "official_parity.py"), *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=540,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["answers"] == 12
    assert found["equal"] + found["explained"] == 12
