"""The benchmarks are commands beside the packages; tests import what they are made of."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from attrs import frozen

from rlvr_cvdp.task import STARTER

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

FAKE = '''\
"""Stands for run_benchmark.py: writes the files, notes its call, and says what it was told to."""

import argparse, json, os
from pathlib import Path

parser = argparse.ArgumentParser()
for name in ("-f", "-p", "-t"):
    parser.add_argument(name)
args = parser.parse_args()
results = {}
for line in open(args.f):
    row = json.loads(line)
    parts = row["id"].split("_")
    at = Path(args.p, "cvdp_" + "_".join(parts[1:-1]), "harness", str(int(parts[-1])))
    log = at / "log.txt"
    for path, text in row["output"]["context"].items():
        (at / path).parent.mkdir(parents=True, exist_ok=True)
        (at / path).write_text(WRITTEN(text))
    at.mkdir(parents=True, exist_ok=True)
    wrong = any("endmodule" not in text for text in row["output"]["context"].values())
    log.write_text("failed to solve: no such host" if BLOCKED else "test session starts\\\\nE   no")
    rc = 17 if BLOCKED else STATUS if wrong else 0
    test = {"result": rc, "log": str(log), "error_msg": None, "execution": 1.5}
    if STOPPED:
        print(f"Timeout for {at}/run_docker_harness_direct.sh (77s) expired")
        rc = test["result"] = 1
    results[row["id"]] = {"tests": [test], "errors": rc}
call = {"image": os.environ["OSS_SIM_IMAGE"], "timeout": os.environ["DOCKER_TIMEOUT"], "t": args.t}
Path("call.json").write_text(json.dumps(call))
if RESULTS:
    Path(args.p, "raw_result.json").write_text(json.dumps(results))
'''


@frozen
class Checkout:
    """A folder with a runner that behaves as told."""

    folder: Path

    def make(
        self,
        *,
        written: str = "text",
        blocked: bool = False,
        stopped: bool = False,
        results: bool = True,
        status: int = 1,
    ) -> Path:
        script = FAKE.replace("\\\\n", "\\n").replace("WRITTEN(text)", written)
        script = script.replace("BLOCKED", str(blocked)).replace("RESULTS", str(results))
        script = script.replace("STOPPED", str(stopped)).replace("STATUS", str(status))
        (self.folder / "run_benchmark.py").write_text(script)
        return self.folder

    def call(self) -> dict[str, str]:
        return dict(json.loads((self.folder / "call.json").read_text()))


@pytest.fixture
def checkout(tmp_path: Path) -> Checkout:
    """A stand-in for a checkout of the official runner."""
    (tmp_path / "checkout").mkdir()
    return Checkout(tmp_path / "checkout")


@pytest.fixture
def starter_rows(tmp_path: Path) -> Path:
    """Three problems of the starter set, as a data set file of its own."""
    lines = STARTER.read_text().splitlines()[:3]
    path = tmp_path / "three.jsonl"
    path.write_text("\n".join(lines) + "\n")
    return path


def agentic(context: dict[str, str], targets: dict[str, str]) -> dict[str, Any]:
    """The smallest agentic row."""
    return {
        "id": "cvdp_agentic_two_words_0004",
        "categories": ["cid003", "easy"],
        "prompt": "",
        "context": context,
        "patch": targets,
        "harness": {},
    }
