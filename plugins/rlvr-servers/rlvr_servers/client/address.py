"""A model spec `SCHEME:URL#NAME` taken apart."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from attrs import frozen

from rlvr import ConfigError

SCHEMES = ("server", "vllm", "sglang", "openai")


@frozen(kw_only=True)
class Address:
    """The URL of a server and the name of one of its models ("" for its only one)."""

    base: str
    query: str = ""
    model: str = ""

    @classmethod
    def parse(cls, spec: str) -> Address:
        """
        Read a model spec, with or without its scheme. A URL without a path gets `/v1`.

        Raises:
            ConfigError: It holds no http or https URL, or one with a password in it.
        """
        scheme = next((s for s in SCHEMES if spec.startswith(f"{s}:")), "")
        url, _, name = spec.removeprefix(f"{scheme}:").partition("#")
        parts = urlsplit(url)
        try:
            is_whole = parts.scheme in ("http", "https") and bool(parts.hostname)
            _ = parts.port
        except ValueError:
            is_whole = False
        if not is_whole:
            raise ConfigError(
                f"model '{spec}' was asked for.",
                "found: no http:// or https:// URL",
                f"write it like {scheme or 'server'}:http://localhost:8000#NAME",
            )
        if "@" in parts.netloc:
            raise ConfigError(
                "the server's URL holds a user name or password.",
                "found: it would be written into results",
                "give the key in the environment: RLVR_SERVER_KEY",
            )
        path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
        base = urlunsplit((parts.scheme, parts.netloc, path, "", ""))
        return cls(base=base, query=parts.query, model=name)

    def url(self, path: str) -> str:
        """The URL of `/v1/models` and the like, or of a path beside `/v1`: `/tokenize`."""
        base = self.base if path.startswith("/v1/") else self.base.removesuffix("/v1")
        return base + path.removeprefix("/v1") + (f"?{self.query}" if self.query else "")

    @property
    def is_local(self) -> bool:
        """True for this machine: no proxy stands between."""
        return urlsplit(self.base).hostname in ("localhost", "127.0.0.1", "::1")
