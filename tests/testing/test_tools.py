"""Missing tools, data and torch skip aloud, or fail where they are required."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import rlvr.testing
from rlvr.cli.plugins_report import Report
from rlvr.testing import LossContract, require_tool, shared_data
from rlvr.testing.contract import close
from rlvr.testing.fakes import ReinforceLoss
from rlvr.testing.tools import require_torch


def test_a_tool_that_is_there_gives_its_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The path is that of the executable found first."""
    tool = tmp_path / "mytool"
    tool.write_text("#!/bin/sh\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))

    assert require_tool("mytool") == str(tool)


def test_a_missing_tool_skips_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reason names the tool and the command that installs it."""
    monkeypatch.delenv("RLVR_REQUIRE_TOOLS", raising=False)

    with pytest.raises(pytest.skip.Exception, match="no-such-tool is not on PATH; try: apt x"):
        require_tool("no-such-tool", fix="apt x")


def test_a_missing_tool_fails_where_tools_are_required(monkeypatch: pytest.MonkeyPatch) -> None:
    """With RLVR_REQUIRE_TOOLS=1 nothing is skipped in silence."""
    monkeypatch.setenv("RLVR_REQUIRE_TOOLS", "1")

    with pytest.raises(pytest.fail.Exception, match="no-such-tool is not on PATH"):
        require_tool("no-such-tool")


def test_promises_that_need_torch_are_not_checked_without_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`rlvr plugins check` does not say of such a promise that it does not apply."""
    monkeypatch.setitem(sys.modules, "torch", None)
    report = Report()

    with pytest.raises(pytest.skip.Exception, match="torch, which is not installed") as skipped:
        require_torch()
    report.skip("loss mine", str(skipped.value), "test_order")
    report.skip("loss mine", "this loss ignores advantages", "test_sign")

    assert report.counts["loss mine"] == {"refused": 1, "skip": 1}
    assert list(report.refused) == [
        "loss mine: losses are computed with torch, which is not installed"
    ]


def test_without_torch_one_skip_tells_of_all_promises_that_call_a_loss(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The others hold as ever: what it needs, what adapts, how it weighs, its built-in form."""
    every = {name for name in dir(LossContract) if name.startswith("test_")}
    monkeypatch.setitem(sys.modules, "torch", None)

    class Case(LossContract):
        def make_loss(self) -> ReinforceLoss:
            return ReinforceLoss()

    kept = {name for name in every if getattr(Case, name) is not None}
    skipped = set()
    for name in sorted(kept):
        try:
            getattr(Case(), name)()
        except pytest.skip.Exception:
            skipped.add(name)
    assert skipped == {"test_gives_a_finite_scalar_and_plain_metrics"}
    assert len(kept) >= 9
    assert len(every - kept) == 13


def test_data_are_found_where_the_variable_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RLVR_DATA wins, and what it lacks is told with the folder's name."""
    (tmp_path / "cvdp").mkdir()
    (tmp_path / "cvdp" / "rows.jsonl").write_text("{}\n")
    monkeypatch.setenv("RLVR_DATA", str(tmp_path))
    monkeypatch.delenv("RLVR_REQUIRE_TOOLS", raising=False)

    assert shared_data("cvdp", "rows.jsonl") == tmp_path / "cvdp" / "rows.jsonl"
    with pytest.raises(pytest.skip.Exception, match=r"cvdp/other.jsonl.*RLVR_DATA"):
        shared_data("cvdp", "other.jsonl")


def test_data_are_found_beside_the_project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From any folder of the project ../shared/data is found; elsewhere the test skips."""
    (tmp_path / "shared" / "data").mkdir(parents=True)
    deep = tmp_path / "project" / "tests" / "core"
    deep.mkdir(parents=True)
    monkeypatch.delenv("RLVR_DATA", raising=False)
    monkeypatch.delenv("RLVR_REQUIRE_TOOLS", raising=False)
    monkeypatch.chdir(deep)

    assert shared_data() == tmp_path / "shared" / "data"
    with pytest.raises(pytest.skip.Exception, match="beside a parent folder"):
        shared_data("chess")


def test_public_names_are_all_there() -> None:
    """Each name in `__all__` is importable, and no other is promised."""
    for name in rlvr.testing.__all__:
        assert getattr(rlvr.testing, name).__name__ == name
    assert set(rlvr.testing.__all__) == set(rlvr.testing._HOMES)
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = rlvr.testing.nothing_like_it


@pytest.mark.integration
def test_rlvr_does_not_import_its_test_kit() -> None:
    """`import rlvr` needs neither pytest nor the kit; the kit needs no torch to be imported."""
    code = (
        "import sys, rlvr; assert 'pytest' not in sys.modules; "
        "assert 'rlvr.testing' not in sys.modules; "
        "import rlvr.testing; assert 'pytest' not in sys.modules; "
        "[getattr(rlvr.testing, n) for n in rlvr.testing.__all__]; "
        "assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env=dict(os.environ), timeout=240)


def test_the_kit_says_in_words_what_is_wrong() -> None:
    """No assertion shows values alone: which promise is broken, what was found, what was wanted."""
    bare = []
    for file in Path(rlvr.testing.contract.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            words = (ast.JoinedStr, ast.Constant, ast.Name, ast.BinOp)
            if isinstance(node, ast.Assert) and not isinstance(node.msg, words):
                bare.append(f"{file.name}:{node.lineno}: {ast.unparse(node)}")
    assert not bare, "\n".join(bare)


def test_numbers_that_differ_are_told_by_how_much() -> None:
    """Also where they are no numbers (NaN), or another number of them."""
    close("logprobs", [1.0, 2.0], [1.0, 2.1], 0.2)
    close("nothing", [], [], 0.0)
    for found, said in (
        ([1.0, 2.5], "logprobs: the largest difference is 0.5, at most 0.2 is allowed"),
        ([1.0, math.nan], "logprobs: the largest difference is nan, at most 0.2 is allowed"),
        ([1.0], "logprobs, the shape: (1,), not (2,)"),
    ):
        with pytest.raises(AssertionError, match=re.escape(said)):
            close("logprobs", found, [1.0, 2.0], 0.2)
