"""Links and pipes that a simulation leaves: what reads and writes for it stays in the sandbox."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import tempfile
from pathlib import Path

import pytest

from rlvr_cvdp.config import CvdpConfig
from rlvr_cvdp.results.plain import is_plain, read_plain
from rlvr_cvdp.sandbox import open_sandbox
from rlvr_cvdp.sandbox.folders.tidy import clear
from rlvr_cvdp.waves.record import record_waves

in_each_sandbox = pytest.mark.usefixtures("simulator", "place")
SECRET = (
    '<testsuites name="results"><testsuite name="all"><testcase name="SECRET" classname="t">'
    '<failure error_type="SECRET" error_msg="SECRET"/></testcase></testsuite></testsuites>\n'
    "/code/rtl/inc.sv:1: error: SECRET\n** TESTS=9 PASS=9 FAIL=0 SKIP=0\n"
)


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder of this machine, with files of the names that are read."""
    folder = tmp_path / "outside"
    folder.mkdir()
    for name in ("inc.sv", "secret.xml", "secret.log", "secret.build", "1.failed.fst", "w.vcd"):
        (folder / name).write_text(SECRET)
    return folder


def contents(folder: Path) -> dict[str, str]:
    """What lies in a folder and below it."""
    return {str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}


def harness(bench, body: str, **files: str) -> dict[str, str]:
    """The bench's runner with one more test, which does something after the simulation."""
    lines = "".join(f"    {line}\n" for line in body.strip().splitlines())
    test = f"\ndef test_then():\n    import os, shutil\n{lines}"
    return {"src/test_runner.py": bench.runner + test, **files}


@pytest.mark.one_of(3)
@in_each_sandbox
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
@pytest.mark.integration
def test_a_folder_that_became_a_link_is_not_written_through(bench, outside):
    """The harness leaves links in place of folders and files: the next answer lands in the tree."""
    body = f"""
for name in ("rtl", "docs"):
    os.rename("/code/" + name, "/code/old." + name)
    os.symlink({str(outside)!r}, "/code/" + name)
shutil.rmtree("/code/verif")
os.mkdir("/code/verif")
os.symlink({str(outside / "inc.sv")!r}, "/code/verif/inc.sv")
"""
    context = {"docs/inc.sv": "// new\n", "verif/inc.sv": "// new\n"}
    before = contents(outside)
    problem = bench.problem(harness=harness(bench, body), context=context)
    reward = bench.rtl(bench.right, problem, seeds=("1", "2"))
    assert reward.score01 == 1.0, reward.evidence
    assert len(reward.evidence["services"]) == 2
    assert contents(outside) == before


@pytest.mark.one_of(4)
@in_each_sandbox
@pytest.mark.places("warm", "fresh", "rootfs", "docker")
@pytest.mark.integration
def test_notes_that_lead_out_are_not_read(bench, outside):
    """Links, pipes and folders among the notes hold no result, and keep nobody waiting."""
    body = f"""
os.chdir("/rlvr/out")
for name in ("secret.xml", "secret.log", "secret.build"):
    os.symlink({str(outside)!r} + "/" + name, name)
os.symlink({str(outside)!r}, "folder")
for name in ("pipe.xml", "pipe.log", "pipe.build"):
    os.mkfifo(name)
for name in ("dir.xml", "dir.log", "dir.build"):
    os.mkdir(name)
for name in ("secret", "pipe", "dir", "folder/secret", {str(outside / "secret")!r}):
    with open("launches", "a") as file:
        file.write("0 " + name + chr(10))
for name in ("items", "refused"):
    shutil.rmtree(name, ignore_errors=True)
    if os.path.exists(name): os.unlink(name)
    os.symlink({str(outside / "secret.log")!r}, name)
os._exit(1)
"""
    compose = bench.compose + bench.compose.partition("services:\n")[2].replace("direct", "again")
    changes = harness(bench, body, **{"docker-compose.yml": compose})
    reward = bench.rtl(bench.right, bench.problem(harness=changes), tests="share")
    assert reward.score01 == 0.0
    assert len(reward.evidence["services"]) == 2
    assert "SECRET" not in str(reward.evidence)


@pytest.mark.integration
@pytest.mark.usefixtures("simulator")
@pytest.mark.parametrize("is_whole", [False, True])
def test_waveforms_that_lead_out_are_not_copied(bench, outside, tmp_path, is_whole):
    """Neither through links of single waveforms nor through their folder; nothing is removed."""
    (outside / "rlvr_waves").mkdir()
    (outside / "rlvr_waves" / "1.failed.vcd").write_text(SECRET)
    body = """
os.rename("/code/rundir", "/code/old")
os.symlink(@, "/code/rundir")
"""
    if not is_whole:
        body = """
shutil.rmtree("/code/rundir/rlvr_waves", ignore_errors=True)
os.makedirs("/code/rundir/rlvr_waves")
os.symlink(@ + "/w.vcd", "/code/rundir/rlvr_waves/1.failed.vcd")
os.symlink(@ + "/w.vcd", "/code/rundir/loose.vcd")
os.mkfifo("/code/rundir/rlvr_waves/2.failed.vcd")
"""
    before = contents(outside)
    problem = bench.problem(harness=harness(bench, body.replace("@", repr(str(outside))))).payload
    sandbox = open_sandbox(CvdpConfig(**bench.place))
    copied = tmp_path / "copied"
    recording = asyncio.run(
        record_waves(
            problem,
            {"rtl/inc.sv": bench.right},
            bench.settings(sandbox, problem),
            out=copied,
            form="vcd",
        )
    )
    assert "SECRET" not in str([wave.path.read_text() for wave in recording.waves])
    assert not copied.exists() or "SECRET" not in str(contents(copied))
    assert contents(outside) == before


def test_only_plain_files_are_read(tmp_path, outside):
    """No link, on the way or at its end, no pipe, no folder, no device."""
    tree = tmp_path / "tree"
    (tree / "rtl").mkdir(parents=True)
    (tree / "rtl" / "a.sv").write_bytes(b"module \xff")
    (tree / "link").symlink_to(outside)
    (tree / "loop").symlink_to("loop")
    (tree / "rtl" / "link.sv").symlink_to(outside / "inc.sv")
    (tree / "rtl" / "device.sv").symlink_to("/dev/zero")
    os.mkfifo(tree / "rtl" / "pipe.sv")
    assert read_plain(tree / "rtl" / "a.sv", tree, 6) == "module"
    assert read_plain(tree / "rtl" / "a.sv") == "module \N{REPLACEMENT CHARACTER}"
    for name in ("rtl/link.sv", "rtl/device.sv", "rtl/pipe.sv", "rtl", "loop", "loop/a", "none"):
        assert not is_plain(tree / name), name
        assert read_plain(tree / name) == "", name
    for name in ("link/inc.sv", "rtl/../../outside/inc.sv", "rtl/link.sv"):
        assert read_plain(tree / name, tree) == "", name
    (tmp_path / "other").symlink_to(tree)  # the way to the folder may hold a link
    assert is_plain(tmp_path / "other" / "rtl" / "a.sv", tmp_path / "other")


def test_what_is_emptied_ends_at_links(tmp_path, outside):
    """Emptying a folder removes links, not what they lead to, nor does it open that up."""
    folder = tmp_path / "slot"
    (folder / "deep").mkdir(parents=True)
    for place in (folder / "link", folder / "deep" / "link"):
        place.symlink_to(outside)
    (folder / "deep" / "shut").symlink_to(outside / "inc.sv")
    outside.chmod(0o500)
    before = contents(outside)
    (folder / "deep").chmod(0)
    folder.chmod(0o050)
    clear(folder)
    assert folder.stat().st_mode & 0o7777 == 0o750  # opened, and as it was for others
    assert list(folder.iterdir()) == []
    assert contents(outside) == before
    assert outside.stat().st_mode & 0o777 == 0o500


WHAT_LIES_THERE = {
    "a link to a file": "os.unlink(place); os.symlink(victim, place)",
    "a link to a folder": "shutil.rmtree('/code/rtl'); os.symlink(folder, '/code/rtl')",
    "a pipe": "os.unlink(place); os.mkfifo(place)",
    "a folder": "os.unlink(place); os.makedirs(place + '/more')",
    "a second name": "os.unlink(place); os.link('/code/rundir/sim.log', place)",
    "a closed folder": "os.chmod('/code/rtl', 0)",
    "a file in the folder's place": "shutil.rmtree('/code/rtl'); open('/code/rtl', 'w').close()",
}


@in_each_sandbox
@pytest.mark.integration
@pytest.mark.parametrize("deed", WHAT_LIES_THERE)
def test_an_answer_that_is_looked_at_again_is_not_written_through(bench, outside, deed):
    """A wrong answer's files are written once more, where its harness has run: into the tree."""
    names = f"place, folder, victim = '/code/rtl/inc.sv', {str(outside)!r}, {str(outside)!r}"
    body = f"{names} + '/inc.sv'\nopen('/code/rundir/sim.log', 'a').close()\n"
    body += f"{WHAT_LIES_THERE[deed]}\nassert False"
    before = contents(outside)
    reward = bench.rtl(bench.right, bench.problem(harness=harness(bench, body)))
    assert contents(outside) == before
    assert (reward.score01, reward.components["compilation"]) == (0.0, 0.5), reward.evidence


NOTE = "tool.7", "netlists", "9.log", "9.build", "compiled", "cone", "expanded"
LEFT = {
    "pipes": "os.mkfifo('/rlvr/out/' + name)",
    "links": "os.symlink({victim!r}, '/rlvr/out/' + name)",
    "folders": "os.mkdir('/rlvr/out/' + name)",
    "files with holes": (
        "[os.truncate(os.open(f'/rlvr/out/{{n}}{{name}}', os.O_CREAT | os.O_RDWR), 60_000_000)"
        " for n in range(40)]"
    ),
}


@pytest.mark.one_of(2, "False-pipes", "False-links")
@in_each_sandbox
@pytest.mark.integration
@pytest.mark.parametrize("deed", LEFT)
@pytest.mark.parametrize("is_right", [True, False])
def test_what_a_harness_leaves_among_the_notes_is_not_read(bench, tmp_path, deed, is_right):
    """Pipes, links, large files under each name that was ever read: no wait, no memory, no call."""
    victim = tmp_path / "call"
    argv = ["-p", "read_verilog /code/rtl/inc.sv"]
    victim.write_text(json.dumps({"tool": "yosys", "argv": argv, "cwd": "/", "scripts": {}}))
    body = f"for name in {NOTE}:\n    " + LEFT[deed].format(victim=str(victim))
    body += "" if is_right else "\nassert False"
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    reward = bench.rtl(bench.right, bench.problem(harness=harness(bench, body)))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400_000
    assert reward.score01 == float(is_right), reward.evidence
    assert reward.components["compilation"] == 0.5
    assert "netlist" not in reward.evidence, "a call was noted that nobody made"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can make what belongs to another user")
def test_empty_folders_of_another_user_go_too():
    """As the Docker daemon leaves them under a mounted place; what lies beside them goes."""
    top = Path(tempfile.mkdtemp())  # pytest's own folders are closed to others
    (top / "rtl" / "sub").mkdir(parents=True)
    (top / "rtl" / "big").write_text("x")
    for path in (top, top / "rtl", top / "rtl" / "sub", top / "rtl" / "big"):
        os.chown(path, 65534, 65534)
    (top / "rtl" / "theirs").mkdir()
    (top / "theirs").mkdir()
    child = os.fork()
    if child == 0:
        code = 1
        try:
            os.setuid(65534)
            clear(top)
            code = len(os.listdir(top))
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0
    top.rmdir()
