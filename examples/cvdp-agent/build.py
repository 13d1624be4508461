"""
Build the example agent's Docker image from Debian, without a registry.

    sudo python build.py [--tag NAME] [--dataset FILE --answers FILE] [--mirror URL] [--root DIR]

debootstrap unpacks Debian with Python, agent.py is put at /agent, and `docker import` makes the
image. ANSWERS are JSON Lines `{"id", "files": {path: text}}`: what the agent is to write for the
rows of DATASET; without them it knows only its fixed rule. A root of an earlier call is used again.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    """Build the image and print its name."""
    parser = argparse.ArgumentParser(description=__doc__.strip().splitlines()[0])
    parser.add_argument("--tag", default="cvdp-example-agent")
    parser.add_argument("--suite", default="trixie", help="Debian release")
    parser.add_argument("--mirror", default="http://deb.debian.org/debian")
    parser.add_argument("--dataset", type=Path, action="append", default=[])
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--agent", type=Path, default=HERE / "agent.py")
    parser.add_argument("--root", type=Path, help="folder of the Debian root, kept")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = options.root or Path(folder) / "root"
        if not (root / "usr/bin/python3").exists():
            words = ["debootstrap", "--variant=minbase", "--include=python3"]
            subprocess.run([*words, options.suite, str(root), options.mirror], check=True)
        shutil.rmtree(root / "agent", ignore_errors=True)
        (root / "agent").mkdir()
        shutil.copyfile(options.agent, root / "agent/agent.py")
        answers = known(options.dataset, options.answers) if options.answers else {}
        (root / "agent/answers.json").write_text(json.dumps(answers), encoding="utf-8")
        import_root(root, options.tag)
    print(f"{options.tag}: knows {len(answers)} answers", file=sys.stderr)
    return 0


def known(datasets: list[Path], answers: Path) -> dict[str, dict[str, str]]:
    """The files to write, by the SHA-256 of the prompt: an agent is not told a problem's id."""
    files = {row["id"]: row["files"] for row in rows(answers)}
    found = {}
    for row in [row for dataset in datasets for row in rows(dataset)]:
        prompt = row["prompt"] if "prompt" in row else row["input"]["prompt"]
        if row["id"] in files:
            found[hashlib.sha256(prompt.encode()).hexdigest()] = files[row["id"]]
    return found


def rows(path: Path) -> list[dict]:
    """The records of a JSON Lines file."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines if line.strip()]


def import_root(root: Path, tag: str) -> None:
    """Make an image of the root that starts the agent."""
    changes = ["ENV PATH=/usr/local/bin:/usr/bin:/bin", "WORKDIR /code"]
    changes.append('ENTRYPOINT ["python3", "/agent/agent.py"]')
    words = [word for change in changes for word in ("--change", change)]
    packed = ["tar", "-C", str(root), "--numeric-owner", "--exclude=./dev/*", "--exclude=./proc/*"]
    with subprocess.Popen([*packed, "-c", "."], stdout=subprocess.PIPE) as tar:
        subprocess.run(["docker", "import", *words, "-", tag], stdin=tar.stdout, check=True)


if __name__ == "__main__":
    sys.exit(main())
