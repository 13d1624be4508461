"""Designs, harnesses and machines that misbehave: a verdict or an error, soon, and nothing left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rlvr import PrerequisiteError, Reward, Trajectory, VerifierError
from rlvr.testing.tools import require_tool
from rlvr_cvdp.sandbox.folders import root

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

HEAD = "module inc(input [7:0] a, output [7:0] y);\n  assign y = a + 8'd1;\n"


def _left(bench) -> list[str]:
    """Work folders of this process that are no warm sandbox's which waits for an answer."""
    entries = set(root._own_folder(os.getpid()).iterdir()) - bench.judged.waiting()
    return [entry.name for entry in entries if entry.name.startswith("v")]


def _descendants() -> set[int]:
    found = subprocess.run(
        ["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True, timeout=120
    )
    return {int(line.split()[0]) for line in found.stdout.splitlines() if f"{os.getpid()}-" in line}


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    "loop",
    [
        "initial forever begin end",
        "reg r = 0; always @(r) r = ~r; initial #1 r = 1;",
        "integer i; initial while (1) i = i + 1;",
    ],
)
def test_an_endless_loop_is_a_wrong_answer_soon(bench, loop):
    """A design that never lets time go on fails within its limit, with the reason."""
    begun = time.monotonic()
    reward = bench.rtl(HEAD + loop + "\nendmodule\n", timeout_s=0.9)
    if "reg r" not in loop or reward.score01 == 0.0:
        assert reward.score01 == 0.0
        assert "time" in reward.evidence["why"], reward.evidence
    assert time.monotonic() - begun < 30
    assert _left(bench) == []


@pytest.mark.places("fresh", "warm", "docker")
def test_output_without_end_is_a_wrong_answer_soon(bench, place):
    """Output past the limit ends the simulation; little of it is kept."""
    output_mb = {"fresh": 1, "warm": 3, "docker": 1}[place]
    text = "x" * 1000
    loop = f'initial forever $display("{text}");'
    reward = bench.rtl(HEAD + loop + "\nendmodule\n", output_mb=output_mb, timeout_s=4.0)
    assert reward.score01 == 0.0
    assert "output" in reward.evidence["why"]
    assert len(str(reward.evidence)) < 5000


@pytest.mark.one_of(2)
def test_a_huge_memory_is_a_wrong_answer(bench):
    """A design that asks for more memory than allowed fails; the machine keeps its own."""
    design = HEAD + "reg [1023:0] m [0:33554431]; initial m[5] = 1;\nendmodule\n"
    reward = bench.rtl(design, memory_mb=1024)
    assert reward.score01 == 0.0
    assert reward.evidence["why"]


WRITE = """\
    import time
    for number in range({files}):
        with open(f"/code/rundir/{{number}}", "wb") as file:
            file.write(bytes({size}))
        time.sleep(0.03)
    for a in range(4):"""


@pytest.mark.parametrize(("files", "size", "why"), [(60, 1_000_000, "disk"), (1, 9_000_000, "")])
def test_what_is_written_is_bounded(bench, files, size, why):
    """One big file, or many that are big together, end the simulation."""
    write = WRITE.format(files=files, size=size)
    test = bench.test.replace("    for a in range(4):", write)
    problem = bench.problem(harness={"src/test_inc.py": test})
    assert bench.rtl(bench.right, problem, disk_mb=200).score01 == 1.0
    reward = bench.rtl(bench.right, problem, file_mb=4, disk_mb=10)
    assert reward.score01 == 0.0, reward.evidence
    assert why in reward.evidence["why"]
    assert _left(bench) == []


BOMBS = {
    "children": """
    for _ in range(600):
        if os.fork() == 0:
            signal.pause()
""",
    # Each goes on in a session of its own and without its parent: no group holds them all.
    "orphans": """
    while True:
        if os.fork() == 0:
            os.setsid()
            if os.fork():
                os._exit(0)
""",
    "doubling": """
    while True:
        os.fork()
""",
    "threads": """
    import threading
    threading.stack_size(65536)
    for _ in range(5000):
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
""",
}


@pytest.mark.one_of(4)
@pytest.mark.parametrize("bomb", BOMBS)
def test_processes_are_bounded(bench, bomb, place):
    """What forks without end is ended with all its processes; the next answer notices nothing."""
    body = "import os, signal, time\ndef test_bomb():\n"
    body += "    if 'BOMB' not in open('/code/rtl/inc.sv').read():\n        return"
    runner = bench.runner + "\n" + body + BOMBS[bomb]
    problem = bench.problem(harness={"src/test_runner.py": runner})
    right = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})
    evil = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right + "// BOMB\n"})

    async def judge() -> list[Reward]:
        async with bench.reward(processes=100) as reward:
            return [await reward(problem, answer) for answer in (evil, right)]

    begun = time.monotonic()
    bombed, after = asyncio.run(judge())
    assert [bombed.score01, after.score01] == [0.0, 1.0], bombed.evidence
    if place != "docker":  # a container refuses the fork, which the harness is told
        assert "more processes" in bombed.evidence["why"]
        assert bombed.evidence["stage"] == "processes"
        assert bombed.evidence["services"][0]["stopped"] == "processes"
    assert time.monotonic() - begun < 30
    assert _left(bench) == []
    assert not _descendants()


@pytest.mark.places("rootfs", "docker")
def test_a_harness_that_only_waits_is_no_verdict(bench):
    """A verifier that waits says nothing about the answer; see test_idle.py for other sandboxes."""
    runner = bench.runner.replace(
        "    runner = get", "    import time; time.sleep(60)\n    runner = get"
    )
    problem = bench.problem(harness={"src/test_runner.py": runner})
    with pytest.raises(VerifierError, match="waits"):
        bench.rtl(bench.right, problem, idle_s=0.5)
    assert _left(bench) == []


@pytest.mark.one_of(3)
@pytest.mark.parametrize(
    ("pipe", "options"),
    [
        ("/dev/stdout", {}),
        ("/proc/1/fd/1", {"tests": "share"}),
        ("/proc/1/fd/1", {"syntax": "verilator"}),
    ],
)
def test_a_text_that_waits_for_a_pipe_is_a_wrong_answer(bench, pipe, options):
    """A compiler that reads its own output waits without computing: the design's doing."""
    if "syntax" in options:
        require_tool("verilator", "sudo apt-get install -y verilator")
    test = "import pytest\n" + bench.runner.replace(
        "def test_runner():", "@pytest.mark.parametrize('n', range(4))\ndef test_runner(n):"
    )
    problem = bench.problem(harness={"src/test_runner.py": test})
    begun = time.monotonic()
    options = {**options, "timeout_s": 5.0}
    reward = bench.rtl(f'`include "{pipe}"\n{bench.right}', problem, **options)
    assert (reward.score01, reward.components["compilation"]) == (0.0, 0.0), reward.evidence
    assert time.monotonic() - begun < 30
    assert _left(bench) == []


@pytest.mark.parametrize("name", ["KILL", "TERM"])
def test_a_simulator_killed_from_outside_is_no_verdict(bench, name):
    """A simulator that somebody else ends says nothing about the answer."""
    test = bench.test.replace(
        "    for a in range(4):",
        f"    import os, signal; os.kill(os.getpid(), signal.SIG{name})\n    for a in range(4):",
    )
    with pytest.raises(VerifierError, match=f"SIG{name}"):
        bench.rtl(bench.right, bench.problem(harness={"src/test_inc.py": test}))


@pytest.mark.one_of(2)
def test_a_crash_of_the_simulator_is_a_wrong_answer(bench):
    """A simulator that crashes on the design is the design's doing."""
    test = bench.test.replace(
        "    for a in range(4):",
        "    import os, signal; os.kill(os.getpid(), signal.SIGSEGV)\n    for a in range(4):",
    )
    reward = bench.rtl(bench.right, bench.problem(harness={"src/test_inc.py": test}))
    assert reward.score01 == 0.0
    assert "crashed" in reward.evidence["why"]


@pytest.mark.places("fresh")
def test_a_missing_simulator_is_named_with_its_fix(bench, monkeypatch, tmp_path):
    """Without iverilog nothing is scored: the error names the package."""
    problem = bench.problem()
    (tmp_path / "bin").mkdir()
    bwrap = subprocess.run(
        ["which", "bwrap"], capture_output=True, text=True, check=True, timeout=120
    )
    (tmp_path / "bin" / "bwrap").symlink_to(bwrap.stdout.strip())
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    with pytest.raises(PrerequisiteError, match="apt-get install -y iverilog"):
        bench.rtl(bench.right, problem)


@pytest.mark.places("fresh", "warm")
def test_a_sandbox_that_cannot_start_is_no_verdict(bench, monkeypatch, tmp_path):
    """A bubblewrap without namespaces raises with its own words."""
    fake = tmp_path / "bin" / "bwrap"
    fake.parent.mkdir()
    fake.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setenv("PATH", f"{fake.parent}:{os.environ['PATH']}")
    with pytest.raises(VerifierError, match="No permissions"):
        bench.rtl(bench.right)


@pytest.mark.places("fresh")
def test_a_missing_python_package_is_no_verdict(bench):
    """A harness that imports what no stack has is named, not scored."""
    test = "import surely_not_there\n" + bench.test
    task = bench.task(bench.row(harness={"src/test_inc.py": test}))
    assert list(task.problems("all")) == []
    assert "surely_not_there" in task.unsupported()["cvdp_copilot_inc_0001"]


@pytest.mark.one_of(4)
def test_a_harness_that_cannot_be_imported_is_no_verdict(bench):
    """An import that fails while pytest collects is the harness's fault."""
    runner = "import importlib\nimportlib.import_module('surely_not_there')\n" + bench.runner
    with pytest.raises(VerifierError, match="surely_not_there"):
        bench.rtl(bench.right, bench.problem(harness={"src/test_runner.py": runner}))


@pytest.mark.one_of(2)
def test_cancelling_kills_the_sandbox(bench):
    """A cancelled verification leaves no process and no folder."""
    problem = bench.problem()
    reward = bench.reward()
    endless = Trajectory(
        problem_id=problem.id,
        files={"rtl/inc.sv": HEAD + "initial forever begin end\nendmodule\n"},
    )

    async def start_and_cancel() -> None:
        task = asyncio.create_task(reward(problem, endless))
        await asyncio.sleep(1.0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(start_and_cancel())
    time.sleep(0.2)
    assert _left(bench) == []
    assert not _descendants()


@pytest.mark.places("fresh")
def test_what_a_crashed_process_left_is_swept(monkeypatch, tmp_path):
    """Folders of processes that are gone are removed; those of living ones stay, seen or not."""
    monkeypatch.setattr(root.tempfile, "gettempdir", lambda: str(tmp_path))
    command = [sys.executable, "-c", "import os; print(os.getpid())"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    gone = done.stdout.strip()
    for owner in (gone, str(os.getpid())):
        (root.root() / f"{owner}-abc" / "v1").mkdir(parents=True)
    unseen = root.root() / f"{gone}-def"  # as of a container that shares the folder alone
    unseen.mkdir()
    assert root._lock(unseen) is not None
    assert root.sweep() == 1
    assert {entry.name for entry in root.root().iterdir()} == {f"{os.getpid()}-abc", unseen.name}


@pytest.mark.places("fresh")
def test_a_folder_is_never_seen_without_its_lock(monkeypatch, tmp_path):
    """Another container sweeps at the moment at which the folder is there and the lock is not."""
    monkeypatch.setattr(root.tempfile, "gettempdir", lambda: str(tmp_path))
    done = subprocess.run(["sh", "-c", "echo $$"], capture_output=True, text=True, check=True)
    lock = root._lock

    def late(folder):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(root, "_lock", lock)
            assert root.sweep() == 0
        return lock(folder)

    monkeypatch.setattr(root, "_lock", late)
    own = root._own_folder.__wrapped__(int(done.stdout))  # whose id nobody sees, as from elsewhere
    monkeypatch.setattr(root, "_lock", lock)
    assert root.sweep() == 0
    assert own.is_dir()


@pytest.mark.places("fresh")
def test_an_unwritable_folder_is_named(monkeypatch):
    """Where no sandbox can be made, the error says which folder and what to set."""
    monkeypatch.setattr(root.tempfile, "gettempdir", lambda: "/proc/nowhere")
    root._own_folder.cache_clear()
    with pytest.raises(PrerequisiteError, match="TMPDIR"):
        root._own_folder(os.getpid())
    root._own_folder.cache_clear()
    assert Path("/proc").exists()
