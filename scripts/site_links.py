"""For mkdocs: links to files of the repository outside docs/, and pipes in the cells of tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\((\.\.?/[^)\s#]+)[^)]*\)")
_ROW = re.compile(r"^\|.*", re.MULTILINE)
_CODE = re.compile(r"`[^`]+`")


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """
    Leave the words of a link to such a file; a file that does not exist stays a broken link.

    A pipe in code marks in a table is escaped for GitHub; mkdocs would show the backslash.
    """
    docs, folder = Path(config.docs_dir), Path(page.file.abs_src_path).parent

    def text(link: re.Match[str]) -> str:
        target = (folder / link[2]).resolve()
        return link[0] if target.is_relative_to(docs) or not target.exists() else link[1]

    def row(cells: re.Match[str]) -> str:
        return _CODE.sub(lambda code: code[0].replace("\\|", "|"), cells[0])

    return _ROW.sub(row, _LINK.sub(text, markdown))
