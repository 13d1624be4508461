"""Keeps the code in Markdown pages equal to the files it comes from.

A block that follows a line `<!-- file: PATH -->` (path from the repository's root) holds exactly
that file. Without arguments the pages are rewritten; `--check` names those that differ (exit 1).

    python scripts/include_code.py [--check]
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BLOCK = re.compile(r"<!-- file: (?P<path>\S+) -->\n```(?P<language>\w*)\n(?P<code>.*?)```\n", re.S)


def included(page: str, root: Path = ROOT) -> str:
    """The page with every marked block replaced by its file."""

    def replace(match: re.Match[str]) -> str:
        code = (root / match["path"]).read_text(encoding="utf-8")
        return f"<!-- file: {match['path']} -->\n```{match['language']}\n{code}```\n"

    return BLOCK.sub(replace, page)


def main(arguments: list[str]) -> int:
    """Rewrite or check every page under docs/."""
    different = []
    for path in sorted((ROOT / "docs").rglob("*.md")):
        page = path.read_text(encoding="utf-8")
        if (new := included(page)) != page:
            different.append(path.relative_to(ROOT))
            if "--check" not in arguments:
                path.write_text(new, encoding="utf-8")
    for name in different:
        print(f"{name}: {'differs from its files' if '--check' in arguments else 'rewritten'}")
    return 1 if different and "--check" in arguments else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
