from __future__ import annotations

import os
from pathlib import Path

import pytest
from judging.images import fixed_names, image_with_cocotb1, why_no_image

DOCKER = """\
#!/bin/sh
echo "$*" >> {log}
case "$*" in
  *--format*) echo '["PATH={path}:/usr/bin"]' ;;
  "image inspect {missing}") exit 1 ;;
  create*) echo made ;;
esac
"""


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A docker command that notes its calls; it has every image but `hdlc/sim:osvb`."""
    return fake(tmp_path, monkeypatch, path="/opt/cvdp/stack-2/bin")


def fake(folder: Path, monkeypatch: pytest.MonkeyPatch, *, path: str) -> Path:
    log = folder / "calls"
    script = folder / "docker"
    script.write_text(DOCKER.format(log=log, path=path, missing="hdlc/sim:osvb"))
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")
    return log


def test_a_name_is_given_where_it_is_free_and_taken_back(docker: Path) -> None:
    """A person's own image of that name stays what it is; nothing stays behind."""
    with fixed_names("ours:1") as given:
        assert given == ["hdlc/sim:osvb"]
        assert docker.read_text().splitlines()[1] == "tag ours:1 hdlc/sim:osvb"
    assert docker.read_text().splitlines()[3:] == ["rmi hdlc/sim:osvb"]


def test_the_older_image_differs_in_its_path_only(docker: Path) -> None:
    """Same files, same tools: what changes a verdict then is cocotb."""
    with image_with_cocotb1("host:5000/ours:1") as tag:
        assert tag == "host:5000/ours:cocotb-1"
    calls = docker.read_text().splitlines()
    change = "ENV PATH=/opt/cvdp/stack-1/bin:/usr/bin"
    assert f"commit --change {change} made {tag}" in calls
    assert calls[-2:] == ["rm made", f"rmi {tag}"]


def test_a_foreign_image_has_no_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only images of rlvr cvdp build-image hold both generations at known places."""
    log = fake(tmp_path, monkeypatch, path="/usr/local/bin")
    with image_with_cocotb1("nvidia/cvdp-sim:v1.0.0") as tag:
        assert tag is None
    assert len(log.read_text().splitlines()) == 1


def test_a_missing_image_says_what_makes_it(docker: Path) -> None:
    """A person's mistake gets a sentence, not a traceback."""
    assert why_no_image("hdlc/sim:osvb").startswith("Docker has no image hdlc/sim:osvb")
    assert why_no_image("ours:1") == ""
