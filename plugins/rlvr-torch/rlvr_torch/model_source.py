"""Model specs of the backend: where weights come from, as often as they are asked for.

    gpt2:PATH                                  a directory in Hugging Face's layout
    gpt2:new?layers=2&heads=2&width=64&positions=256&tokenizer=PATH&seed=0
                                               from scratch; every key is optional

`tokenizer` is a `tokenizer.json` or a directory that holds one; by default tokens are bytes.
`seed` is by default the run's.
"""

from __future__ import annotations

from pathlib import Path

from attrs import frozen

from rlvr.errors import BackendError, ConfigError
from rlvr_torch.gpt2 import GPT2, GPT2Config
from rlvr_torch.tokenizer import BytePairTokenizer
from rlvr_torch.weights import load_gpt2

_NUMBERS = {"layers": 2, "heads": 2, "width": 64, "positions": 256}


@frozen(kw_only=True)
class ModelSource:
    """Gives the same start weights each time: from a directory, or from a seed."""

    directory: Path | None = None
    layers: int = _NUMBERS["layers"]
    heads: int = _NUMBERS["heads"]
    width: int = _NUMBERS["width"]
    positions: int = _NUMBERS["positions"]
    tokenizer_path: Path | None = None
    seed: int = 0

    @classmethod
    def parse(cls, spec: str, seed: int = 0) -> ModelSource:
        """
        Read a model spec.

        Raises:
            ConfigError: It is not `gpt2:PATH` of a folder or `gpt2:new?...`, or a key or value is
                unknown.
        """
        scheme, _, rest = spec.partition(":")
        if scheme != "gpt2" or not rest:
            raise ConfigError(
                f"the backend 'torch' cannot use the model {spec!r}\n"
                "  it takes gpt2:PATH, or gpt2:new?layers=2&heads=2&width=64"
            )
        if rest != "new" and not rest.startswith("new?"):
            directory = Path(rest).expanduser()
            if not directory.is_dir():
                raise ConfigError(
                    f"the model {spec!r} was asked for\n"
                    f"  found: {'a file' if directory.exists() else 'no such folder'}\n"
                    "  give the folder that holds config.json, model.safetensors and tokenizer.json"
                )
            return cls(directory=directory)
        numbers = {**_NUMBERS, "seed": seed}
        tokenizer_path: Path | None = None
        for pair in filter(None, rest[4:].split("&")):  # not URL decoding: a path may hold + or %
            key, _, value = pair.partition("=")
            if key == "tokenizer":
                tokenizer_path = Path(value).expanduser()
            elif key in numbers:
                numbers[key] = _whole(key, value, spec)
            else:
                known = ", ".join([*numbers, "tokenizer"])
                raise ConfigError(f"model {spec!r}: unknown key {key!r}\n  known: {known}")
        return cls(
            layers=numbers["layers"],
            heads=numbers["heads"],
            width=numbers["width"],
            positions=numbers["positions"],
            seed=numbers["seed"],
            tokenizer_path=tokenizer_path,
        )

    def tokenizer(self) -> BytePairTokenizer:
        """The tokenizer that goes with the model."""
        path = self.directory or self.tokenizer_path
        return BytePairTokenizer.bytes_only() if path is None else BytePairTokenizer.load(path)

    def model(self, vocab_size: int) -> GPT2:
        """
        The start weights, on the CPU.

        Raises:
            BackendError: The directory cannot be used, or its model knows fewer tokens than
                `vocab_size`.
        """
        if self.directory is None:
            config = GPT2Config(
                vocab_size=vocab_size,
                n_positions=self.positions,
                n_embd=self.width,
                n_layer=self.layers,
                n_head=self.heads,
            )
            return GPT2.new(config, self.seed)
        model = load_gpt2(self.directory)
        if model.config.vocab_size < vocab_size:
            raise BackendError(
                f"{self.directory}: the tokenizer has {vocab_size} tokens, "
                f"the model only {model.config.vocab_size}: they do not belong together"
            )
        return model


def _whole(key: str, value: str, spec: str) -> int:
    if not value.isdecimal() or (int(value) == 0 and key != "seed"):
        raise ConfigError(f"model {spec!r}: {key} must be a whole number, got {value!r}")
    return int(value)
