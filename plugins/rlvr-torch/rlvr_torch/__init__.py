"""
Local PyTorch backend of rlvr: the project's own GPT-2, tokenizer, generation engine and trainer.

Public names, by module (import them from there; this package itself imports nothing):

- `rlvr_torch.gpt2`: `GPT2`, `GPT2Config` - the model.
- `rlvr_torch.tokenizer`: `BytePairTokenizer`, `END_OF_TEXT` - byte-level BPE, trained or loaded.
- `rlvr_torch.weights`: `load_gpt2`, `save_gpt2`, `read_config` - Hugging Face's directory layout.
- `rlvr_torch.engine`: `Engine` - batched generation.
- `rlvr_torch.logprobs`: `sequence_logprobs`, `ChunkedLogprobs` - logprobs without full logits.
- `rlvr_torch.crew`: `Crew` - threads that share a batch; `rlvr_torch.prefixes`:
  `supervised_hidden` - hidden states with shared prompts computed once.
- `rlvr_torch.model_source`: `ModelSource` - model specs `gpt2:PATH` and `gpt2:new?...`.
- `rlvr_torch.backend`: `TorchBackend`; `rlvr_torch.policy`: `TorchPolicy`;
  `rlvr_torch.config`: `TorchConfig` - what a run uses.
- `rlvr_torch.device`: `choose_device`; `rlvr_torch.optim`: `build_adamw`, `learning_rate`,
  `clip_gradients`; `rlvr_torch.data`: `check_data`, `microbatches` - for
  backends built on this one.
"""
