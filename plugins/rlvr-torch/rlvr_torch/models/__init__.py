"""Networks and their files: our GPT-2, transformers models, LoRA, tokenizers, load and save."""
