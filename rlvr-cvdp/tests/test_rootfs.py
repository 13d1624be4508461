"""`rlvr cvdp build-rootfs`: what the root holds, and what happens when it cannot be built."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from attrs import evolve

from rlvr import ConfigError, PrerequisiteError, VerifierError
from rlvr.testing.tools import missing, require_tool
from rlvr_cvdp.commands import doctor as checks
from rlvr_cvdp.commands import images as commands
from rlvr_cvdp.images import recipe
from rlvr_cvdp.images import rootfs as building
from rlvr_cvdp.images.mirror import DEFAULT, apt_mirror, check_mirror
from rlvr_cvdp.images.probe import toolchain_of_root
from rlvr_cvdp.toolchain.toolchain import host_toolchain

NEW_IN_12 = """\
module top(input reg [7:0] a, output logic [7:0] y);
  function automatic [7:0] same;
    input logic [7:0] v;
    begin
      same = v;
    end
  endfunction
  assign y = same(a);
endmodule
"""


def inside(root: Path, *command: str) -> str:
    """What a command prints with the root as its /usr."""
    words = [require_tool("bwrap"), "--unshare-all", "--die-with-parent", "--clearenv"]
    for name in ("usr", "opt/cvdp", "etc"):
        words += ["--ro-bind", f"{root}/{name}", f"/{name}"]
    for name in ("bin", "lib", "lib64"):
        words += ["--symlink", f"usr/{name}", f"/{name}"]
    words += ["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--chdir", "/tmp"]
    done = subprocess.run([*words, "--setenv", "PATH", recipe.PATH, *command], **_TEXT)
    assert done.returncode == 0, done.stdout
    return str(done.stdout)


_TEXT = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "check": False}


@pytest.fixture
def needs_root() -> None:
    """The test unpacks packages or mounts."""
    require_tool("debootstrap", "sudo apt-get install -y debootstrap")
    if os.geteuid() != 0:
        missing("only root can do this")


@pytest.fixture
def small_disk(tmp_path: Path, needs_root: None) -> Iterator[Path]:
    """A disk of 40 MB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=40m", "tmpfs", str(folder)]
    if subprocess.run(mount, check=False, timeout=120).returncode:
        missing("this machine lets nobody mount")
    yield folder
    subprocess.run(["umount", str(folder)], check=True, timeout=120)


@pytest.mark.integration
def test_the_manifest_tells_what_is_there(rootfs):
    """Tools, interpreters, libraries and packages lie where the manifest says, pins included."""
    toolchain = toolchain_of_root(rootfs)
    assert set(toolchain.tools) == {"iverilog", "vvp", "verilator", "yosys"}
    for path in toolchain.tools.values():
        assert os.access(f"{rootfs}{path}", os.X_OK)
    manifest = json.loads((rootfs / "opt/cvdp/manifest.json").read_text())
    for generation, names in recipe.pins().items():
        stack = toolchain.stacks[generation]
        assert stack.prefixes == ()
        assert Path(f"{rootfs}{stack.libpython}").is_file()
        assert Path(f"{rootfs}{stack.site_packages}/pytest/__pycache__").is_dir()
        held = manifest["stacks"][str(generation)]["distributions"]
        assert [f"{n}=={held[n]}" for n in (name.split("==")[0] for name in names)] == list(names)
    assert toolchain.stacks[1].versions["cocotb"] == "1.9.2"
    assert toolchain.stacks[2].versions["cocotb"] == "2.0.1"


@pytest.mark.integration
def test_the_simulator_is_icarus_12(rootfs):
    """It takes a design that Debian 12's iverilog rejects twice: `input reg`, `logic v`."""
    assert toolchain_of_root(rootfs).versions["iverilog"].startswith("12.")
    assert "version 12." in inside(rootfs, "iverilog", "-V")
    script = f"cat >a.sv <<'END'\n{NEW_IN_12}END\niverilog -g2012 -t null a.sv"
    assert inside(rootfs, "/bin/sh", "-ec", script) == ""


@pytest.mark.integration
@pytest.mark.parametrize(("generation", "version"), [(1, "1.9.2"), (2, "2.0.1")])
def test_both_stacks_run_with_the_root_as_usr(rootfs, generation, version):
    """Each generation's cocotb imports, and finds the shared library that vvp embeds."""
    stack = toolchain_of_root(rootfs).stacks[generation]
    code = (
        "import cocotb, pytest, find_libpython as f; print(cocotb.__version__, f.find_libpython())"
    )
    said = inside(rootfs, str(stack.python), "-W", "ignore", "-c", code).split()
    assert said[0] == version
    assert Path(said[1]).name.partition(".so")[0] == stack.libpython.name.partition(".so")[0]


@pytest.mark.integration
def test_nobody_gains_rights_inside(rootfs):
    """No file below /usr, /etc or /opt is setuid or setgid, and every user can read them all."""
    for start in ("usr", "etc", "opt"):
        for path in (rootfs / start).rglob("*"):
            if not path.is_symlink() and (path.is_file() or path.is_dir()):
                assert path.lstat().st_mode & 0o6004 == 0o4, path


@pytest.mark.integration
def test_a_second_call_finds_it(rootfs, capsys):
    """Building again does nothing, and tells where the root lies."""
    started = time.monotonic()
    assert commands.rootfs(["--json"]) == 0
    assert time.monotonic() - started < 2
    told = json.loads(capsys.readouterr().out)
    assert (told["folder"], told["built"]) == (str(rootfs), False)
    assert building.built_rootfs() == rootfs
    assert checks.rootfs().ok


@pytest.mark.parametrize(
    ("files", "advice"),
    [
        ({"unprivileged_userns_clone": "0\n"}, "kernel.unprivileged_userns_clone=1"),
        ({"apparmor_restrict_unprivileged_userns": "1\n"}, "unprivileged_userns=0"),
        ({"unprivileged_userns_clone": "1\n"}, "outside of the container or chroot"),
        ({}, "outside of the container or chroot"),
    ],
)
def test_only_a_setting_that_is_there_is_to_be_changed(tmp_path, files, advice):
    """By the kernel's own files: another kernel, or a chroot, has none of them."""
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    assert advice in checks._allow_namespaces(tmp_path)


@pytest.mark.integration
def test_what_a_root_lacks_is_said(rootfs, bench):
    """A harness's missing package or generation is a VerifierError, never a wrong answer."""
    toolchain = toolchain_of_root(rootfs)
    problem = bench.problem().payload
    assert toolchain.stack_for(problem) == toolchain.stacks[2]
    assert toolchain.stack_for(evolve(problem, needs=("cocotbext.axi",), generation=2))
    with pytest.raises(VerifierError, match=r"imports nowhere, which .*cocotb 2\.0\.1.* lacks"):
        toolchain.stack_for(evolve(problem, needs=("nowhere",)))
    alone = evolve(toolchain, stacks={1: toolchain.stacks[1]})
    with pytest.raises(VerifierError, match="holds no cocotb of generation 2"):
        alone.stack_for(problem)
    with pytest.raises(PrerequisiteError, match="needs vvp"):
        evolve(toolchain, tools={}).tool("vvp")


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"stacks": {"x": 1}, "tools": {}}'])
def test_a_folder_that_is_no_root(tmp_path, text):
    """Without a manifest that can be read, the error names the command that builds the root."""
    if text is not None:
        (tmp_path / "opt/cvdp").mkdir(parents=True)
        (tmp_path / "opt/cvdp/manifest.json").write_text(text)
    with pytest.raises(PrerequisiteError, match=f"build-rootfs --out {tmp_path}"):
        toolchain_of_root(tmp_path)


def test_the_host_has_a_toolchain(simulator):
    """The host's record holds its real paths, and one digest as long as nothing changes."""
    toolchain = host_toolchain()
    assert toolchain.is_host
    assert Path(toolchain.tool("iverilog")).is_file()
    assert toolchain.digest == host_toolchain().digest


def test_only_root_can_build(tmp_path, monkeypatch):
    """Another user is told the sudo command, with the folder of their own cache."""
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="you are not root") as caught:
        building.build_rootfs()
    program = Path(sys.executable).parent / "rlvr"
    assert f"try: sudo {program} cvdp build-rootfs --suite trixie" in str(caught.value)
    assert f"--out {recipe.rootfs_dir()}" in str(caught.value)
    assert checks.rootfs().fix in str(caught.value)


def test_debootstrap_is_missing(tmp_path, monkeypatch):
    """Without debootstrap the error names the command that installs it."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(PrerequisiteError, match="try: sudo apt-get install -y debootstrap"):
        building.build_rootfs(out=tmp_path / "root")


def test_something_else_lies_there(tmp_path):
    """A folder with other things in it is left alone."""
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(PrerequisiteError, match="something else lies there"):
        building.build_rootfs(out=tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "years"


def test_two_builders_build_once(tmp_path, monkeypatch):
    """The second waits for the first and uses its root."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(building, "find_tool", lambda _: Path("/bin/true"))
    monkeypatch.setattr(building, "check_mirror", lambda *_: None)
    built = []

    def build(root: Path, suite: str, mirror: str) -> None:
        time.sleep(0.3)
        built.append(root)
        (root / "opt/cvdp").mkdir(parents=True)
        manifest = {"recipe": recipe.recipe_hash(suite)}
        (root / "opt/cvdp/manifest.json").write_text(json.dumps(manifest))

    monkeypatch.setattr(building, "_build", build)
    results: list[tuple[Path, bool]] = []
    ask = lambda: results.append(building.build_rootfs(out=tmp_path / "root"))  # noqa: E731
    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(built) == 1
    assert sorted(is_new for _, is_new in results) == [False, False, True]


def test_too_little_room(small_disk):
    """A disk that is too small is refused before anything is fetched; nothing is left."""
    with pytest.raises(PrerequisiteError, match=rf"\d+ MB free, needed: {building.NEEDED_MB} MB"):
        building.build_rootfs(out=small_disk / "root")
    assert [p.name for p in small_disk.iterdir() if p.suffix != ".lock"] == []


@pytest.mark.network
@pytest.mark.integration
def test_the_disk_fills_up(small_disk, monkeypatch):
    """Room that runs out in the middle is what the error says; nothing is left but the lock."""
    monkeypatch.setattr(building, "NEEDED_MB", 1)
    with pytest.raises(PrerequisiteError, match="no space left on the disk of"):
        building.build_rootfs(out=small_disk / "root")
    assert [p.name for p in small_disk.iterdir()] == ["root.lock"]


@pytest.mark.network
@pytest.mark.integration
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_build(tmp_path, needs_root, how):
    """Ctrl-C leaves nothing, and a killed build nothing that looks complete or is mounted."""
    root = tmp_path / "root"
    command = [sys.executable, "-m", "rlvr.cli.main", "cvdp", "build-rootfs", "--out", str(root)]
    with subprocess.Popen(
        command,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    ) as process:
        until = time.monotonic() + 60
        while not (tmp_path / "root.partial/debootstrap").exists() and time.monotonic() < until:
            time.sleep(0.05)
        os.killpg(process.pid, how)
        assert process.wait(30) == (130 if how == signal.SIGINT else -how)
    assert not building.is_complete(root)
    assert not root.exists()
    assert (tmp_path / "root.partial").exists() == (how == signal.SIGKILL)
    assert str(tmp_path) not in Path("/proc/self/mountinfo").read_text()


class NoSuite(BaseHTTPRequestHandler):
    """A mirror that has nothing."""

    def do_GET(self) -> None:
        self.send_error(404)

    def log_message(self, *_: object) -> None:
        pass


def test_the_suite_does_not_exist():
    """A mirror that answers, but not for this suite, is a mistake in the question."""
    with HTTPServer(("127.0.0.1", 0), NoSuite) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        with pytest.raises(ConfigError, match="no such suite"):
            check_mirror(f"http://127.0.0.1:{server.server_port}/debian", "potatoe")
    with pytest.raises(ConfigError, match="no http, https or file address"):
        check_mirror("debian", "trixie")


def test_the_mirror_is_unreachable():
    """A mirror that does not answer is named, with a way out."""
    with pytest.raises(PrerequisiteError, match=r"127\.0\.0\.1:9(.|\n)*refused(.|\n)*--mirror"):
        check_mirror("http://127.0.0.1:9/debian", "trixie")


@pytest.mark.parametrize(
    ("name", "text", "wanted"),
    [
        ("sources.list", "deb http://near.example/debian bookworm main\n", "near.example"),
        ("sources.list", "deb [arch=amd64] https://near.example/debian/ sid main", "near.example"),
        ("sources.list", "# deb http://near.example/debian bookworm main\n", "deb.debian.org"),
        ("sources.list", "deb http://near.example/ubuntu noble main\n", "deb.debian.org"),
        ("sources.list", "deb http://near.example/debian-security b main\n", "deb.debian.org"),
        (
            "sources.list.d/debian.sources",
            "Types: deb\nURIs: http://near.example/debian\nSuites: bookworm\n",
            "near.example",
        ),
        ("sources.list.d/other.list", "deb http://near.example/debian sid main", "near.example"),
        ("nothing", "", "deb.debian.org"),
    ],
)
def test_the_mirror_of_apt_is_used(tmp_path, name, text, wanted):
    """The archive that apt uses here is taken, where it is one of Debian's."""
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text(text)
    assert apt_mirror(tmp_path).split("/")[2] == wanted
    assert apt_mirror(tmp_path / "none") == DEFAULT


def test_every_change_gives_a_new_name(monkeypatch):
    """The folder's name follows suite, packages, pins and the script."""
    seen = {recipe.rootfs_dir(), recipe.rootfs_dir("bookworm")}
    monkeypatch.setattr(recipe, "EXTRAS", {1: (), 2: ("coverage==1",)})
    seen.add(recipe.rootfs_dir())
    monkeypatch.setattr(recipe, "furnish_source", lambda: "another")
    seen.add(recipe.rootfs_dir())
    assert len(seen) == 4
    assert recipe.recipe_hash("trixie", "debian:trixie") != recipe.recipe_hash(
        "trixie", "debian:13"
    )
