"""Sandboxes: nothing goes from one problem to the next, warm ones judge as fresh ones do."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from pathlib import Path

import pytest

from rlvr import ConfigError, PrerequisiteError, Reward, Trajectory
from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.launch.service import service_environment
from rlvr_cvdp.launch.tree import write_tree
from rlvr_cvdp.sandbox import Finished, Limits, SandboxLease, in_thread, open_sandbox
from rlvr_cvdp.sandbox.folders import root
from rlvr_cvdp.sandbox.processes.collector import Collector
from starter_problems.mutants import mutants

pytestmark = [pytest.mark.integration, pytest.mark.usefixtures("simulator", "place")]

LITTER = """\
for d in /tmp /rundir /dev/shm; do head -c 2000000 /dev/zero > $d/left || exit 1; done
echo secret > /tmp/left; echo secret > /rundir/left; echo secret > /dev/shm/left
echo secret > /code/left; echo secret > /code/rtl/left; echo secret > /code/rundir/left
mkdir -p /tmp/deep/er; echo secret > /tmp/deep/er/left; chmod 0 /tmp/deep
mkdir -p /code/rundir/shut; echo secret > /code/rundir/shut/left; chmod 0 /code/rundir/shut
ln -s /src /code/rtl/link
(setsid sleep 1000 </dev/null >/dev/null 2>&1 &)
sleep 1000 &
true
"""
LOOK = """\
find / -xdev -name left 2>/dev/null; ls -A /tmp /rundir /dev/shm /code /code/rtl /code/rundir
for p in /proc/[0-9]*; do tr '\\0' ' ' < $p/cmdline 2>/dev/null; echo; done | grep '^[s]leep'
true
"""


def _sleepers(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("sleep")]


async def _sh(slot: SandboxLease, script: str) -> Finished:
    return await slot.run(
        ["/bin/sh", "-c", script],
        environment={"PATH": "/usr/bin:/bin"},
        limits=Limits.of(CvdpConfig(timeout_s=20.0)),
    )


def _sandbox(bench):
    reward = bench.reward()
    return reward._sandbox, reward._sandbox.toolchain.stack_for(bench.problem().payload)


async def _shared(bench):
    """The same where other tests have worked in it already."""
    sandbox = await bench.judged.sandbox(bench.reward()._config)
    return sandbox, sandbox.toolchain.stack_for(bench.problem().payload)


@pytest.mark.parametrize("times", [1, 2, 3])
def test_work_on_files_holds_no_event_loop_and_ends_before_a_cancellation_goes_on(times):
    """Else a slot would be lent again while a thread still writes into it."""
    ended, ticks = [], []

    def work():
        time.sleep(0.3)
        ended.append(threading.current_thread() is threading.main_thread())

    async def cancelled():
        task = asyncio.ensure_future(in_thread(work))
        for _ in range(3):
            await asyncio.sleep(0.02)
            ticks.append(not ended)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        with pytest.raises(asyncio.CancelledError):
            await task
        return list(ended)

    assert asyncio.run(cancelled()) == [False]
    assert ticks == [True] * 3


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_a_slots_files_are_written_beside_the_event_loop(bench, monkeypatch):
    """A verification's tree is written, and its slot emptied, in a thread."""
    where = []

    def written(*given):
        where.append(threading.current_thread() is threading.main_thread())
        write_tree(*given)

    monkeypatch.setattr("rlvr_cvdp.verify.verdict.write_tree", written)
    assert bench.rtl(bench.right).value == 1.0
    assert where
    assert not any(where)


def test_nothing_goes_from_one_problem_to_the_next(bench):
    """Files anywhere, closed folders, links and processes of one problem are gone for the next."""

    async def two() -> tuple[str, str]:
        sandbox, stack = await _shared(bench)
        async with sandbox.slot(stack) as slot:
            first = await _sh(slot, LITTER)
            seen = await _sh(slot, "cat /code/left /code/rtl/left")
            assert (first.rc, seen.output) == (0, "secret\nsecret\n")
        async with sandbox.slot(stack) as slot:
            second = await _sh(slot, LOOK)
            names = sorted(p.name for p in (slot.folder / "tree").iterdir())
            return second.output, " ".join(names)

    output, names = bench.judged.run(two())
    assert "left" not in output, output
    assert "link" not in output, output
    assert not _sleepers(output), output
    assert names == "docs rtl rundir src verif"


LITTER_ALL = """
import os, socket, stat, sys, time

def attempt(function, *words, **more):
    try:
        function(*words, **more)
        return True
    except OSError:
        return False

def litter(folder):
    made = attempt(lambda: open(folder + "/left", "w").write("secret"))
    if not made:
        return
    print("littered", folder)
    attempt(os.symlink, "/src", folder + "/left-link")
    attempt(os.mkfifo, folder + "/left-pipe")
    attempt(os.mkdir, folder + "/left\\nline \xff", 0)
    attempt(socket.socket(socket.AF_UNIX).bind, folder + "/left-socket")
    here = os.open(folder, os.O_RDONLY)
    os.fchdir(here)
    # Longer than a path, in one place deeper than a recursion; below /code that is too large.
    depth = 100 if folder.startswith(("/code", "/rlvr")) else 160
    for number in range(1100 if folder == "/tmp" else depth):
        attempt(os.mkdir, "left-deep-" + "d" * 20)
        if not attempt(os.chdir, "left-deep-" + "d" * 20):
            break
    attempt(os.close, os.open("left", os.O_CREAT | os.O_WRONLY))
    attempt(os.chmod, ".", 0)
    os.fchdir(here)
    for number in range(300):  # a folder that many names made grow
        attempt(os.symlink, "x" * 200, "left-many-%d" % number)

seen = set()
for place, folders, files in os.walk("/"):
    facts = os.stat(place)
    if place.startswith("/proc/") or (facts.st_dev, facts.st_ino) in seen:
        folders[:] = []
        continue
    seen.add((facts.st_dev, facts.st_ino))
    if os.statvfs(place).f_flag & os.ST_RDONLY and place.count("/") > 2:
        folders[:] = []  # of what nobody can write, the first levels
    litter(place)
    for name in [*folders, *files]:
        path = place + "/" + name
        if "left" not in name and not os.path.islink(path):
            mode = stat.S_IMODE(os.stat(path).st_mode) ^ 0o010
            if attempt(os.chmod, path, mode) or attempt(os.utime, path, (1, 1)):
                print("changed", path)
            attempt(os.setxattr, path, "user.left", b"1")
for path in ("/etc/ld.so.preload", "/bin", "/usr/bin/env", "/bin/sh", "/rlvr/real/vvp",
             "/rlvr/python/sitecustomize.py", "/rlvr/scan.py", "/code/src", "/rlvr/run/ask"):
    if attempt(os.rename, path, path + "-left") or attempt(lambda: open(path, "w").write("left")):
        print("replaced", path)
for place in ("/tmp", "/rundir", "/rundir/harness", "/code", "/dev/shm", "/rlvr/out", "/rlvr/run"):
    if attempt(os.chmod, place, 0o500):
        print("closed", place)
    if attempt(os.rmdir, place):
        print("removed", place)
if os.fork() == 0:
    os.setsid()
    if os.fork():
        os._exit(0)
    while True:
        attempt(lambda: open("/tmp/left-daemon", "w"))
        time.sleep(0.01)
"""
LIST_ALL = """
import os, stat
for place, folders, files in os.walk("/"):
    if os.statvfs(place).f_flag & os.ST_RDONLY and place.count("/") > 2:
        folders[:] = []
    if place.startswith("/proc/"):
        folders[:] = []
        continue
    for path in [place, *(place + "/" + name for name in files)]:
        facts = os.lstat(path)
        size = facts.st_size if stat.S_ISDIR(facts.st_mode) else 0
        marks = os.listxattr(path, follow_symlinks=False)
        if path in ("/rlvr/python/program.py", "/code/rtl/program.py"):
            continue
        print(repr(path), oct(facts.st_mode), facts.st_uid, facts.st_gid, size, marks)
for number in sorted(int(name) for name in os.listdir("/proc") if name.isdecimal()):
    print("process", open("/proc/%d/comm" % number).read().strip())
print(oct(os.stat("/code").st_mode), open("/rundir/harness/new", "w").name)
"""


@pytest.mark.places("warm", "docker")
def test_what_one_problem_leaves_anywhere_is_gone_for_the_next(bench):
    """Litter wherever a walk of the tree finds room, in whatever form: the next sees none of it."""

    async def three() -> str:
        sandbox, stack = _sandbox(bench)
        seen = []
        async with sandbox:
            for number, program in enumerate((LIST_ALL, LITTER_ALL, LIST_ALL)):
                async with sandbox.slot(stack) as slot:
                    (slot.folder / "tree" / "rtl" / "program.py").write_text(program)
                    done = await _sh(slot, f"{stack.python} /code/rtl/program.py 2>&1")
                    assert done.rc == 0, (number, done.output[-2000:])
                    seen.append(done.output)
        before, littered, after = seen
        assert before == after, set(before.splitlines()) ^ set(after.splitlines())
        return littered

    littered = asyncio.run(three())
    folders = {line.split()[1] for line in littered.splitlines() if line.startswith("littered")}
    assert {"/tmp", "/rundir", "/rundir/harness", "/code", "/code/rtl", "/dev/shm"} <= folders
    assert not folders & {"/", "/etc", "/usr", "/dev", "/rlvr", "/src", "/rlvr/control"}
    assert "replaced" not in littered.replace("replaced /rlvr/run/ask", ""), littered


@pytest.mark.places("warm", "docker")
def test_a_slot_that_is_used_as_it_should_is_kept(bench):
    """Ordinary answers and litter in the work folders cost no new sandbox."""

    async def three() -> int:
        sandbox, stack = await _shared(bench)
        workers = set()
        for _ in range(3):
            async with sandbox.slot(stack) as slot:
                workers.add(slot)
                await _sh(slot, LITTER)
        return len(workers)

    assert bench.judged.run(three()) == 1


def test_what_one_command_leaves_outside_of_code_is_gone_for_the_next_command(bench):
    """Services share /code and nothing else, as the official runner's containers do."""

    async def two() -> str:
        sandbox, stack = await _shared(bench)
        async with sandbox.slot(stack) as slot:
            await _sh(slot, LITTER)
            return (await _sh(slot, LOOK)).output

    output = bench.judged.run(two())
    assert "/tmp/left" not in output
    assert "/rundir/left" not in output.replace("/code/rundir/left", "")
    assert not _sleepers(output), output


MEDDLE = """
import glob, os
for path in glob.glob("/proc/1/*") + glob.glob("/proc/1/attr/*"):
    for text in ("500", "0", "1", "left"):
        if os.path.isfile(path) and os.stat(path).st_mode & 0o222:
            try:
                with open(path, "w") as file:
                    file.write(text)
            except OSError:
                pass
"""
SETTINGS = """
import os, resource
for name in ("autogroup", "comm", "coredump_filter", "oom_score_adj", "timerslack_ns", "limits"):
    with open("/proc/self/" + name) as file:
        print(name, file.read().split("nice")[-1])
print(os.nice(0), os.sched_getaffinity(0), os.sched_getscheduler(0), os.getcwd(), os.umask(0))
"""


@pytest.mark.places("warm", "docker")
def test_what_is_written_into_the_workers_folder_of_proc_holds_for_nobody_else(bench):
    """Whom the kernel ends first, and the like: a changed worker takes no other problem."""

    async def three() -> list[str]:
        sandbox, stack = _sandbox(bench)
        seen = []
        async with sandbox:
            for program in (SETTINGS, MEDDLE, SETTINGS):
                async with sandbox.slot(stack) as slot:
                    (slot.folder / "tree" / "rtl" / "program.py").write_text(program)
                    done = await _sh(slot, f"{stack.python} /code/rtl/program.py 2>&1")
                    assert done.rc == 0, done.output[-2000:]
                    seen.append(done.output)
        return seen

    before, _, after = asyncio.run(three())
    assert before == after


@pytest.mark.places("warm", "docker")
def test_the_worker_is_out_of_reach(bench):
    """A command sees the process that forked it, and can neither read, change nor end it."""
    spy = """
import glob, os, signal
own = os.getpid()
others = [p for p in glob.glob("/proc/[0-9]*") if int(p[6:]) != own]
held = [p for p in others if b"vvp" in open(p + "/cmdline", "rb").read().split(bytes(1))[0]]
assert held == ["/proc/1"], others
for number in set(signal.Signals) - {signal.SIGCHLD}:
    os.kill(1, number)
status = open("/proc/self/status").read()
assert "CapEff:\t0000000000000000" in status, status
for p in held:
    for name, mode in (("mem", "r+b"), ("environ", "rb"), ("maps", "rb")):
        try:
            file = open(f"{p}/{name}", mode)
            if name == "mem":
                raise AssertionError("its memory can be opened")
            data = file.read(1)
        except OSError:
            continue
        assert not data, (p, name)
print("out of reach")
"""

    async def look() -> str:
        sandbox, stack = await _shared(bench)
        async with sandbox.slot(stack) as slot:
            (slot.folder / "tree" / "rtl" / "spy.py").write_text(spy)
            return (await _sh(slot, f"{stack.python} /code/rtl/spy.py")).output

    assert bench.judged.run(look()).strip() == "out of reach"


FRESH: dict[str, Reward] = {}


@pytest.mark.places("warm", "rootfs", "docker")
def test_warm_and_fresh_judge_alike(bench, place):
    """Right, wrong and broken answers get one verdict, test for test, in every sandbox."""
    problem = bench.problem()
    answers = [bench.right, bench.right.replace(";", "", 1), "module inc; endmodule\n", ""]
    answers += [mutant.text for mutant in mutants(bench.right)][:1]
    host = {"sandbox": "bubblewrap", "rootfs": "host", "image": "", "warm": 0}
    for text in answers:
        if text not in FRESH:  # once for all the places
            FRESH[text] = bench.rtl(text, problem, **host)
        here, there = bench.rtl(text, problem), FRESH[text]
        for name in ("value", "score01", "components", "tests_passed", "tests_total"):
            assert getattr(here, name) == getattr(there, name), (name, text)
        names = ["why", "stage", "stopped_at_first_failure"]
        if place == "warm":  # with the same simulator: what it said, and of each test, too
            names += ["stage_why", "messages", "tests_left_out", "messages_left_out"]
            assert _timeless(here) == _timeless(there), text
        for name in names:
            assert here.evidence[name] == there.evidence[name], (name, text)


def _timeless(reward: Reward):
    return [{k: v for k, v in test.items() if k != "seconds"} for test in reward.evidence["tests"]]


RUNNER = """\
import os, subprocess
from cocotb_tools.runner import get_runner

def simulate(name, **kwargs):
    runner = get_runner("icarus")
    runner.build(sources=["/code/rtl/inc.sv"], hdl_toplevel="inc", always=True, build_dir=name,
                 timescale=("1ns", "1ns"))
    return runner.test(hdl_toplevel="inc", test_module="test_inc", build_dir=name, **kwargs)

def test_plain():
    simulate("one")

def test_plusargs():
    simulate("two", plusargs=["+word=7"], extra_env={"WANTED": "1"})

def test_log_file():
    simulate("three", log_file="/code/rundir/three.log")
    assert "TESTS=1 PASS=1" in open("/code/rundir/three.log").read()

def test_side_by_side():
    from concurrent.futures import ThreadPoolExecutor
    for name in ("four", "five", "six"):
        runner = get_runner("icarus")
        runner.build(sources=["/code/rtl/inc.sv"], hdl_toplevel="inc", always=True,
                     build_dir=name, timescale=("1ns", "1ns"))
    libs = __import__("cocotb_tools.config").config.libs_dir
    def launch(name):
        env = {**os.environ, "COCOTB_TEST_MODULES": "test_inc", "COCOTB_TOPLEVEL": "inc",
               "PYGPI_PYTHON_BIN": os.sys.executable, "TOPLEVEL_LANG": "verilog",
               "COCOTB_RESULTS_FILE": f"/code/rundir/{name}.xml"}
        words = {"four": ["-none"], "five": ["+word=7"], "six": ["-none", "+word=7"]}[name]
        env |= {"WANTED": "1"} if "+word=7" in words else {}
        return subprocess.run(["vvp", "-M", str(libs), "-m", "libcocotbvpi_icarus",
                               f"/code/rundir/{name}/sim.vvp", *words], env=env).returncode
    with ThreadPoolExecutor() as pool:
        assert list(pool.map(launch, ("four", "five", "six"))) == [0, 0, 0]
"""
TEST = """\
import os, sys
import cocotb
from cocotb.triggers import Timer

assert "seen_before" not in sys.modules
sys.modules["seen_before"] = cocotb

@cocotb.test()
async def fresh(dut):
    assert ("+word=7" in cocotb.plusargs or "word" in cocotb.plusargs) == ("WANTED" in os.environ)
    dut.a.value = 3
    await Timer(1, unit="ns")
    assert int(dut.y.value) == 4
"""


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_every_kind_of_launch_is_served(bench):
    """With plusargs, into a log file, side by side: each simulation starts from fresh memory."""
    problem = bench.problem(harness={"src/test_runner.py": RUNNER, "src/test_inc.py": TEST})
    reward = bench.rtl(bench.right, problem)
    assert reward.score01 == 1.0, reward.evidence
    assert reward.evidence["services"][0]["launches"] == 6


@pytest.mark.one_of(4)
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
def test_seeds_are_those_of_a_fresh_process(bench):
    """Random draws, in pytest and in the simulation, depend on the seed alone."""
    test = bench.test.replace(
        "import cocotb\n", "import cocotb, random, os\nDRAWN = random.random()\n"
    ).replace(
        "async def small(dut):\n",
        'async def small(dut):\n    assert f"{DRAWN:.6f} {random.random():.6f}" == "@", '
        'f"{DRAWN:.6f} {random.random():.6f}"\n',
    )
    drawn = {}
    for seed in ("1", "2", "1"):
        problem = bench.problem(harness={"src/test_inc.py": test})
        reward = bench.rtl(bench.right, problem, seeds=(seed,), tests="share")
        said = str(reward.evidence["tests"])
        drawn.setdefault(seed, set()).add(said.partition("AssertionError: ")[2][:17])
    assert len(drawn["1"]) == 1
    assert drawn["1"] != drawn["2"]
    assert all("." in text for texts in drawn.values() for text in texts), drawn


@pytest.mark.places("warm", "docker")
def test_a_worker_that_was_killed_is_replaced_and_the_answer_judged_again(bench):
    """Somebody kills the sandbox once: each answer gets the verdict that it would have had."""
    problem = bench.problem()
    loop = bench.right.replace("endmodule", "initial forever begin end\nendmodule")
    endless = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": loop})
    right = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})

    async def kill_one() -> tuple[Reward, float]:
        async with bench.reward(timeout_s=1.0) as reward:
            assert (await reward(problem, right)).score01 == 1.0
            worker = reward._sandbox._waiting[0]
            task = asyncio.create_task(reward(problem, endless))
            await asyncio.sleep(0.4)
            os.kill(worker._process.pid, signal.SIGKILL)
            return await task, (await reward(problem, right)).score01

    killed, after = asyncio.run(kill_one())
    assert (killed.score01, killed.evidence["stage"], after) == (0.0, "timeout", 1.0)
    assert killed.evidence["control"] is True


@pytest.mark.places("warm", "docker")
def test_a_stopped_command_leaves_the_worker_usable(bench):
    """An answer that runs out of time costs its own time, and no new sandbox."""
    problem = bench.problem()
    loop = bench.right.replace("endmodule", "initial forever begin end\nendmodule")

    async def twice() -> tuple[str, bool]:
        async with bench.reward(timeout_s=0.4) as reward:
            answer = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": loop})
            first = await reward(problem, answer)
            worker = reward._sandbox._waiting[0]
            await reward(problem, answer)
            return first.evidence["why"], reward._sandbox._waiting == [worker]

    why, is_same = asyncio.run(twice())
    assert "time" in why
    assert is_same


@pytest.mark.places("warm")
def test_an_answer_whose_sandbox_breaks_as_it_is_stopped_is_judged(bench, monkeypatch):
    """The broken sandbox's folder stays until it is left: what looks into it meets no error."""
    monkeypatch.setattr("rlvr_cvdp.sandbox.worker._STOP_S", 0.0)
    loop = bench.right.replace("endmodule", "initial forever begin end\nendmodule")
    verdict = bench.judge({"rtl/inc.sv": loop}, timeout_s=0.4)
    assert isinstance(verdict, Reward)
    assert (verdict.score01, verdict.evidence["control"]) == (0.0, True)


@pytest.mark.places("warm")
def test_output_counts_that_is_read_after_the_end_but_is_not_waited_for(bench, monkeypatch):
    """Too much of it is an end of its kind; a pipe that somebody holds open ends the sandbox."""
    monkeypatch.setattr("rlvr_cvdp.sandbox.worker._STOP_S", 0.4)

    async def ended(after_s):
        async def too_much(*_):
            await asyncio.sleep(after_s)
            return False

        monkeypatch.setattr(Collector, "read", too_much)
        sandbox, stack = await _shared(bench)
        async with sandbox.slot(stack) as slot:
            found = await _sh(slot, "true")
            return found.rc, found.stopped

    assert bench.judged.run(ended(0.2)) == (None, "output")
    assert bench.judged.run(ended(60)) == (0, "")


@pytest.mark.places("warm")
def test_leaving_ends_every_worker(bench):
    """After `async with` no process and no folder is left, on an error too."""
    problem = bench.problem()
    right = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})
    seen: list[int] = []
    folders: list[Path] = []

    async def leave() -> None:
        async with bench.reward() as reward:
            await reward(problem, right)
            for worker in reward._sandbox._waiting:
                seen.append(worker._process.pid)
                folders.append(worker.folder)
            raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        asyncio.run(leave())
    assert seen
    assert not any(Path("/proc", str(pid)).exists() for pid in seen)
    assert not any(folder.exists() for folder in folders)


@pytest.mark.places("docker")
def test_a_missing_image_is_named_with_its_command(bench):
    """An image that is not there stops before anything is scored, with what makes it."""
    with pytest.raises(PrerequisiteError, match="rlvr cvdp build-image"):
        bench.rtl(bench.right, image="rlvr/nowhere:1")


@pytest.mark.places("fresh")
def test_an_image_is_for_docker(bench, monkeypatch):
    """An image picks docker where `auto` may choose, and is refused where it would be ignored."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(ConfigError, match=r"cvdp\.sandbox=bubblewrap, which runs no image"):
        open_sandbox(CvdpConfig(sandbox="bubblewrap", image="some/image:1"))
    with pytest.raises(PrerequisiteError, match="no daemon"):
        open_sandbox(CvdpConfig(image="some/image:1"))


@pytest.mark.places("docker")
def test_without_a_daemon_the_error_says_how_to_start_one(bench, monkeypatch):
    """No daemon is a missing prerequisite, never a verdict."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(PrerequisiteError, match="no daemon"):
        bench.rtl(bench.right)


@pytest.mark.places("fresh")
def test_files_are_written_in_an_empty_tree_only(bench):
    """A slot that was renewed takes another problem's files as if it were new."""

    async def twice() -> list[str]:
        sandbox = open_sandbox(CvdpConfig(**{**bench.place, "warm": 1}), workers=1)
        record = bench.problem().payload
        stack = sandbox.toolchain.stack_for(record)
        async with sandbox:
            for _ in range(2):
                async with sandbox.slot(stack) as slot:
                    write_tree(slot.folder, record, {"rtl/inc.sv": bench.right})
                    tree = slot.folder / "tree"
                    found = sorted(str(p.relative_to(tree)) for p in tree.rglob("*"))
                    environment = service_environment(record.services[0], stack, "1", True)
                    await slot.run(
                        record.services[0].command,
                        environment=environment,
                        limits=Limits.of(CvdpConfig()),
                    )
        return found

    assert "rundir/sim_build" not in asyncio.run(twice())


@pytest.mark.every_place
@pytest.mark.places("fresh", "warm", "docker")
@pytest.mark.parametrize("after_s", [0.0, 0.002, 0.01, 0.05, 0.2, 0.6])
def test_a_cancellation_at_any_moment_leaves_nothing(bench, after_s, place):
    """Ctrl-C while a sandbox starts, works or ends: no process, no folder, no complaint."""
    problem = bench.problem()
    right = Trajectory(problem_id=problem.id, files={"rtl/inc.sv": bench.right})
    own = root._own_folder(os.getpid())
    # another test may have left this process a second folder, with sandboxes that wait in the first
    kept = {place for place in bench.judged.waiting() if place.parent == own}

    async def cancel() -> None:
        async with bench.reward() as reward:
            task = asyncio.create_task(reward(problem, right))
            await asyncio.sleep(after_s)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(cancel())
    assert {entry for entry in own.iterdir() if entry.name.startswith("v")} == kept
    words = f"{own.name}/v".encode()
    left = [p for p in Path("/proc").glob("[0-9]*/cmdline") if words in _bytes(p)]
    assert left == []


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
