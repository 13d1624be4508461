"""`rlvr cvdp build-image` and looking into images, with a real Docker daemon."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker_fixture import daemon_pid, start_daemon, stop_daemon

from rlvr import PrerequisiteError
from rlvr.testing.tools import missing, require_tool
from rlvr_cvdp.commands import doctor as checks
from rlvr_cvdp.commands import images as commands
from rlvr_cvdp.images import image, recipe
from rlvr_cvdp.images.daemon import docker_client
from rlvr_cvdp.images.image import build_image, find_image, split_tag
from rlvr_cvdp.images.probe import toolchain_of_image, toolchain_of_root

pytestmark = [pytest.mark.docker, pytest.mark.integration]
_LEAKS = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""The docker package leaves sockets of refused connections to the collector."""


@pytest.fixture
def own_daemon(monkeypatch) -> Iterator[Path]:
    """A daemon that the test may end, and its folder; `DOCKER_HOST` names it."""
    require_tool("dockerd", "sudo apt-get install -y docker.io")
    if os.geteuid() != 0:
        missing("only root can start a Docker daemon")
    folder = start_daemon()
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/sock")
    yield folder
    gc.collect()
    stop_daemon(folder)


def derive(client, tag: str, parent: str, *lines: str) -> str:
    """An image made from another by lines of a Dockerfile."""
    text = "\n".join([f"FROM {parent}", *lines])
    image._build(client, tag, {"Dockerfile": text.encode()}, "none")
    return tag


def test_the_image_holds_what_the_root_holds(sim_image, rootfs, tmp_path, monkeypatch):
    """Same tools, same stacks; the digest is the image's own id. A second look starts nothing."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path))
    of_root = toolchain_of_root(rootfs)
    with docker_client() as client:
        seen = toolchain_of_image(client, sim_image)
        assert (seen.tools, seen.versions) == (of_root.tools, of_root.versions)
        assert (seen.stacks, seen.modules) == (of_root.stacks, of_root.modules)
        assert seen.digest == client.images.get(sim_image).id
        monkeypatch.setattr(type(client.containers), "create", None)
        assert toolchain_of_image(client, sim_image) == seen


def test_the_image_offers_what_the_official_one_does(sim_image):
    """Python, pytest and the tools on PATH, the folders of a harness, and a user without rights."""
    script = (
        "for t in python pytest iverilog vvp verilator yosys; do command -v $t; done; pwd; "
        "ls -d /code /src /rundir/harness; id -un; "
        "python -c 'import cocotb, cocotb_bus, cocotbext.axi, aes, coverage; "
        "print(cocotb.__version__)'"
    )
    with docker_client() as client:
        said = client.containers.run(
            sim_image,
            ["sh", "-ec", script],
            user=f"{recipe.UID}:{recipe.UID}",
            network_mode="none",
            remove=True,
            environment={"HOME": "/tmp"},
        ).decode()
    assert said.split() == [
        "/opt/cvdp/stack-2/bin/python",
        "/opt/cvdp/stack-2/bin/pytest",
        *(f"/usr/bin/{name}" for name in ("iverilog", "vvp", "verilator", "yosys")),
        "/code",
        *("/code", "/rundir/harness", "/src"),
        recipe.USER,
        "2.0.1",
    ]


def test_a_second_call_finds_it(sim_image, capsys):
    """Building again makes nothing; a further name can be given to it."""
    other = "rlvr-test/also:v1.0.0"
    assert commands.image(["--json", "--also", other]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["tag"], told["built"]) == (sim_image, False)
    with docker_client() as client:
        assert client.images.get(other).id == told["id"]
        client.images.remove(other)
    assert checks.docker().ok


def test_an_image_of_somebody_else(sim_image, tmp_path, monkeypatch):
    """An image without our manifest tells itself what its PATH offers, whatever its entry point."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path))
    lines = [f"RUN rm {recipe.MANIFEST}", "USER nobody", 'ENTRYPOINT ["/bin/false"]']
    with docker_client() as client:
        foreign = derive(client, "rlvr-test/foreign:1", sim_image, *lines)
        try:
            seen, ours = (toolchain_of_image(client, name) for name in (foreign, sim_image))
            assert seen.tools == ours.tools
            assert seen.versions == ours.versions
            assert set(seen.stacks) == {2}
            found, wanted = seen.stacks[2], ours.stacks[2]
            assert found.python.parent == wanted.python.parent
            assert (found.site_packages, found.libpython) == (
                wanted.site_packages,
                wanted.libpython,
            )
            assert found.versions == wanted.versions
            assert seen.modules[2] == ours.modules[2]
            assert seen.digest == client.images.get(foreign).id
        finally:
            client.images.remove(foreign)


def test_an_image_that_tells_nothing(sim_image, tmp_path, monkeypatch):
    """Without Python, or without a manifest that can be read, an image cannot be used."""
    monkeypatch.setenv("RLVR_CACHE_DIR", str(tmp_path))
    lines = [f"RUN rm {recipe.MANIFEST}", "ENV PATH=/nowhere"]
    with docker_client() as client:
        mute = derive(client, "rlvr-test/mute:1", sim_image, *lines)
        try:
            with pytest.raises(PrerequisiteError, match=r"does not tell \((.|\n)*python"):
                toolchain_of_image(client, mute)
            names = [c.image.tags for c in client.containers.list(all=True)]
            assert [mute] not in names, "the container that looked was left behind"
        finally:
            client.images.remove(mute)


def test_the_image_is_missing(docker_daemon):
    """The error names the image and the command that builds it."""
    with (
        docker_client() as client,
        pytest.raises(
            PrerequisiteError, match=r"no such image(.|\n)*rlvr cvdp build-image --tag a"
        ),
    ):
        toolchain_of_image(client, "a/b:c")


def test_the_base_is_missing(docker_daemon):
    """A base image that cannot be had: the error says how to do without a registry."""
    with pytest.raises(
        PrerequisiteError, match=r"localhost:9/none:1(.|\n)*try: rlvr cvdp build-im"
    ):
        build_image(base="localhost:9/none:1")


def test_no_daemon(monkeypatch):
    """The error names the socket and the command that starts or installs a daemon."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with (
        pytest.raises(
            PrerequisiteError, match=r"unix:///nowhere/docker\.sock \(No such file(.|\n)*try: s"
        ),
        docker_client("containers were to run."),
    ):
        pass
    assert not checks.docker().ok
    assert "docker" in checks.docker().fix


@_LEAKS
def test_the_daemon_stops_in_between(own_daemon):
    """A call to a daemon that was killed says that it stopped, not how requests calls it."""

    def list_images() -> None:
        with docker_client() as client:
            os.kill(daemon_pid(own_daemon), signal.SIGKILL)
            while True:
                client.images.list()

    with pytest.raises(PrerequisiteError, match="the Docker daemon stopped answering"):
        list_images()


@_LEAKS
def test_the_daemon_stops_during_an_import(own_daemon, rootfs, monkeypatch):
    """Killed while it takes the root in: one error, no traceback."""
    chunks = image._chunks

    def kill(tar):
        for number, chunk in enumerate(chunks(tar)):
            if number == 20:
                os.kill(daemon_pid(own_daemon), signal.SIGKILL)
            yield chunk

    monkeypatch.setattr(image, "_chunks", kill)
    with pytest.raises(PrerequisiteError, match="the Docker daemon stopped answering"):
        build_image(root=rootfs)


def test_the_disk_of_the_daemon_is_full(tmp_path, rootfs, monkeypatch):
    """The error says whose disk is full and what makes room; no image is left."""
    require_tool("dockerd", "sudo apt-get install -y docker.io")
    data = tmp_path / "data"
    data.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(data)]
    if subprocess.run(mount, check=False, timeout=120).returncode:
        missing("this machine lets nobody mount")
    folder = start_daemon(data)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/sock")
    try:
        with pytest.raises(PrerequisiteError, match=r"is full(.|\n)*docker system prune"):
            build_image(root=rootfs)
        with docker_client() as client:
            assert find_image(client, recipe.image_tag()) is None
    finally:
        stop_daemon(folder)
        subprocess.run(["umount", str(data)], check=True, timeout=120)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.network
def test_upon_a_base_image(sim_image, monkeypatch):
    """
    Any Debian image becomes one with our stacks, and tells the same toolchain.

    One stack shows it, the one with a package that has no wheel: the root has both.
    """
    monkeypatch.setattr(recipe, "PINS", {1: recipe.PINS[1]})
    tag, identity, is_new = build_image(base=sim_image, network="host", tag="rlvr-test/based:1")
    with docker_client() as client:
        try:
            assert is_new
            seen, ours = (toolchain_of_image(client, name) for name in (tag, sim_image))
            assert (seen.tools, seen.stacks, seen.modules) == (
                ours.tools,
                {1: ours.stacks[1]},
                {1: ours.modules[1]},
            )
            assert client.images.get(tag).labels[recipe.LABEL] == recipe.recipe_hash("", sim_image)
            assert build_image(base=sim_image, tag=tag)[1:] == (identity, False)
            assert not [t for i in client.images.list() for t in i.tags if ":packages-" in t]
        finally:
            client.images.remove(tag)


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("a/b:1", ("a/b", "1")),
        ("a/b", ("a/b", "latest")),
        ("host:5000/a/b", ("host:5000/a/b", "latest")),
        ("host:5000/a/b:1", ("host:5000/a/b", "1")),
    ],
)
def test_names_of_images(name, wanted):
    """A port in a registry's address is no tag."""
    assert split_tag(name) == wanted
