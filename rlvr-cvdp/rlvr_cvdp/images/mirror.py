"""Where Debian packages come from: the mirror that this machine's apt uses."""

from __future__ import annotations

import re
import urllib.error
import urllib.request
from pathlib import Path

from rlvr import ConfigError, PrerequisiteError

DEFAULT = "http://deb.debian.org/debian"
_DEBIAN = re.compile(r"(?:https?|file)://\S*/debian(?:/\d{8}T\d{6}Z)?/?(?!\S)")


def apt_mirror(folder: Path = Path("/etc/apt")) -> str:
    """The first Debian archive among apt's sources, else Debian's own network of mirrors."""
    parts = folder / "sources.list.d"
    paths = [*parts.glob("*.sources"), folder / "sources.list", *parts.glob("*.list")]
    for path in sorted(paths, key=lambda p: (p.suffix != ".sources", p)):
        try:
            lines = path.read_text("utf-8", errors="replace").splitlines()
        except OSError:
            continue
        for line in lines:
            found = _DEBIAN.findall(line) if line.startswith(("URIs:", "deb ")) else []
            for archive in found:
                if "security" not in archive:
                    return str(archive)
    return DEFAULT


def check_mirror(mirror: str, suite: str) -> None:
    """
    See whether a mirror answers and holds a suite, before half a minute is spent on it.

    Raises:
        ConfigError: It is no address, or does not know the suite.
        PrerequisiteError: It cannot be reached.
    """
    asked = f"packages of Debian {suite!r} from {mirror} were asked for."
    if not mirror.startswith(("http://", "https://", "file:")):
        raise ConfigError(asked, "found: no http, https or file address", _OTHER)
    try:
        urllib.request.urlopen(f"{mirror.rstrip('/')}/dists/{suite}/Release", timeout=30).close()
    except urllib.error.HTTPError as error:
        if error.code in {404, 410}:
            raise ConfigError(
                asked, "found: the mirror has no such suite", "try: --suite trixie"
            ) from None
        raise PrerequisiteError(asked, f"found: {error}", _OTHER) from None
    except (OSError, ValueError) as error:
        raise PrerequisiteError(asked, f"found: {error}", _OTHER) from None


_OTHER = f"try: rlvr cvdp build-rootfs --mirror {DEFAULT}   (or set http_proxy)"
