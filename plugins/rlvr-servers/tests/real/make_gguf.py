"""Write a GPT-2 folder of rlvr as a GGUF file: `python make_gguf.py FOLDER FILE [--begins]`.

With `--begins` the server puts the begin token before each text.
Run by the interpreter that has llama-cpp-python and gguf; needs NumPy besides, and no torch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import gguf
import numpy as np

_NAMES = {
    "ln_1": "attn_norm",
    "attn.c_attn": "attn_qkv",
    "attn.c_proj": "attn_output",
    "ln_2": "ffn_norm",
    "mlp.c_fc": "ffn_up",
    "mlp.c_proj": "ffn_down",
}
_TOP = {"wte": "token_embd", "wpe": "position_embd", "ln_f": "output_norm"}


def tensors(path: Path) -> dict[str, np.ndarray]:
    """The float32 tensors of a safetensors file."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header = json.loads(data[8 : 8 + size])
    header.pop("__metadata__", None)
    body = data[8 + size :]
    return {
        name: np.frombuffer(body[slice(*about["data_offsets"])], np.float32).reshape(about["shape"])
        for name, about in header.items()
    }


def renamed(name: str) -> str:
    """What llama.cpp calls a tensor of transformers' GPT-2."""
    stem, _, kind = name.removeprefix("transformer.").rpartition(".")
    if stem in _TOP:
        return f"{_TOP[stem]}.{kind}"
    _, number, part = stem.split(".", 2)
    return f"blk.{number}.{_NAMES[part]}.{kind}"


def main(folder: Path, out: Path, begins: bool) -> None:
    config = json.loads((folder / "config.json").read_text())
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    writer = gguf.GGUFWriter(str(out), "gpt2")
    writer.add_block_count(config["n_layer"])
    writer.add_context_length(config["n_positions"])
    writer.add_embedding_length(config["n_embd"])
    writer.add_feed_forward_length(4 * config["n_embd"])
    writer.add_head_count(config["n_head"])
    writer.add_layer_norm_eps(1e-5)
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    vocab = {**tokenizer["model"]["vocab"]}
    special = {token["content"]: token["id"] for token in tokenizer["added_tokens"]}
    vocab.update(special)
    tokens = [name for name, _ in sorted(vocab.items(), key=lambda item: item[1])]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    writer.add_token_types(
        [gguf.TokenType.CONTROL if t in special else gguf.TokenType.NORMAL for t in tokens]
    )
    merges = tokenizer["model"]["merges"]
    writer.add_token_merges([m if isinstance(m, str) else " ".join(m) for m in merges])
    writer.add_bos_token_id(special["<|endoftext|>"])
    writer.add_eos_token_id(special["<|endoftext|>"])
    writer.add_add_bos_token(begins)
    for name, value in tensors(folder / "model.safetensors").items():
        is_linear = name.endswith(("c_attn.weight", "c_proj.weight", "c_fc.weight"))
        writer.add_tensor(renamed(name), np.ascontiguousarray(value.T if is_linear else value))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), "--begins" in sys.argv)
