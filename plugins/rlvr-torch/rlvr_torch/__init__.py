"""
Local PyTorch backend of rlvr: models (own GPT-2, transformers'), generation engine and trainer.

Public names, by module (import them from there; this package itself imports nothing):

- `rlvr_torch.gpt2`: `GPT2`, `GPT2Config` - the model.
- `rlvr_torch.tokenizer`: `BytePairTokenizer`, `END_OF_TEXT` - byte-level BPE, trained or loaded.
- `rlvr_torch.weights`: `load_gpt2`, `save_gpt2`, `read_config` - Hugging Face's directory layout.
- `rlvr_torch.engine`: `Engine` - batched generation.
- `rlvr_torch.logprobs`: `sequence_logprobs`, `ChunkedLogprobs` - logprobs without full logits.
- `rlvr_torch.head`: `Head`, `Chunk`; `rlvr_torch.fused`: `head_pass` - output head and loss in one
  pass; `rlvr_torch.update`: `Learner`, `accumulate` - the gradient of a step.
- `rlvr_torch.crew`: `Crew` - threads that share a batch; `rlvr_torch.packed`:
  `supervised_hidden` - hidden states of one row without padding, shared prompts once.
- `rlvr_torch.model_source`: `ModelSource` - model specs `gpt2:PATH`, `gpt2:new?...`, `hf:...`.
- `rlvr_torch.net`: `Net`, `Heads`, `Attend` - what engine and trainer ask of a model;
  `rlvr_torch.hf`: `HFNet`; `rlvr_torch.hf_load`: `load_net`; `rlvr_torch.hf_tokenizer`:
  `HFTokenizer`; `rlvr_torch.lora`: `attach`, `without_adapter`; `rlvr_torch.net_files`:
  `save_net`, `load_weights`.
- `rlvr_torch.backend`: `TorchBackend`; `rlvr_torch.policy`: `TorchPolicy`;
  `rlvr_torch.config`: `TorchConfig` - what a run uses.
- `rlvr_torch.device`: `choose_device`; `rlvr_torch.optim`: `build_adamw`, `learning_rate`,
  `clip_gradients`; `rlvr_torch.data`: `check_data`, `microbatches` - for
  backends built on this one.
"""
