"""For mkdocs: links to files of the repository outside docs/, which no page of the site is."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\.?/[^)\s#]+)[^)]*\)")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Leave the words of a link to such a file; a file that does not exist stays a broken link."""
    docs, folder = Path(config.docs_dir), Path(page.file.abs_src_path).parent

    def text(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[0] if target.is_relative_to(docs) or not target.exists() else link[1]

    return _LINK.sub(text, markdown)
