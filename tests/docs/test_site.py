"""The site of docs/ is built without a warning: every page is in it, and no link is broken."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from runpy import run_path
from xml.etree import ElementTree

import pytest

ROOT = Path(__file__).parents[2]
# What a browser would ask another host for; Material draws mermaid with a script of unpkg.com.
FETCHED = re.compile(r'(?:<(?:script|img|link)\b[^>]*(?:src|href)="https?:|class="mermaid")[^>]*')


def built(config: Path, site: Path) -> subprocess.CompletedProcess[str]:
    """`mkdocs build --strict`, as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config),
         "--site-dir", str(site)],
        capture_output=True, text=True, timeout=280, check=False,
    )  # fmt: skip


@pytest.mark.integration
@pytest.mark.slow
def test_the_site_is_built_and_a_broken_link_is_found(tmp_path: Path) -> None:
    """Every page is in it, and whole without a network; a missing one fails the same build."""
    pytest.importorskip("material", reason="the site needs: pip install mkdocs-material")
    done = built(ROOT / "mkdocs.yml", tmp_path / "site")

    assert done.returncode == 0, done.stderr
    pages = {p.relative_to(ROOT / "docs") for p in (ROOT / "docs").rglob("*.md")}
    for page in pages:
        where = page.parent if page.stem == "index" else page.with_suffix("")
        html = (tmp_path / "site" / where / "index.html").read_text(encoding="utf-8")
        assert not FETCHED.findall(html), page
        assert r"\|" not in html, f"{page}: the backslash of an escaped pipe is shown"

    broken = tmp_path / "broken"
    shutil.copytree(ROOT / "docs", broken / "docs")
    shutil.copytree(ROOT / "scripts", broken / "scripts")
    shutil.copy(ROOT / "mkdocs.yml", broken)
    for page in (broken / "docs").rglob("*.md"):
        if page.name != "index.md":
            page.write_text(f"# {page.stem}\n")
    (broken / "docs" / "index.md").write_text(
        "[gone](gone.md)\n\n[no heading](cli.md#gone)\n\n![no picture](images/gone.svg)\n"
    )
    told = built(broken / "mkdocs.yml", tmp_path / "other")
    assert told.returncode == 1
    assert "gone.md" in told.stderr
    assert "cli.md#gone" in told.stderr
    assert "images/gone.svg" in told.stderr


def test_every_picture_is_drawn_by_a_command_and_shown() -> None:
    """Each figure of the script has its SVG file, and each file in docs/images is in a page."""
    images = ROOT / "docs" / "images"
    figures = run_path(str(ROOT / "scripts" / "figures.py"))["FIGURES"]
    pages = "".join(page.read_text(encoding="utf-8") for page in (ROOT / "docs").rglob("*.md"))

    assert {path.stem for path in images.glob("*.svg")} == set(figures)
    for image in images.iterdir():
        assert f"images/{image.name})" in pages, image.name
    for svg in images.glob("*.svg"):
        assert ElementTree.parse(svg).getroot().tag.endswith("svg"), svg.name
        assert svg.stat().st_size < 100_000, svg.name
