"""
Local PyTorch backend of rlvr: models (own GPT-2, transformers'), generation engine and trainer.

Public names, by module (import them from there; this package itself imports nothing):

- `rlvr_torch.models.gpt2`: `GPT2`, `GPT2Config`; `rlvr_torch.models.gpt2_files`: `load_gpt2`,
  `save_gpt2`, `read_config` - the model, and Hugging Face's directory layout.
- `rlvr_torch.models.bpe`: `BytePairTokenizer`, `END_OF_TEXT` - byte-level BPE, trained or loaded.
- `rlvr_torch.models.source`: `ModelSource` - model specs `gpt2:PATH`, `gpt2:new?...`, `hf:...`.
- `rlvr_torch.models.interface`: `Net`, `Heads`, `Attend` - what engine and trainer ask of a model;
  `rlvr_torch.models.hf.net`: `HFNet`; `rlvr_torch.models.hf.load`: `load_net`;
  `rlvr_torch.models.hf.tokenizer`: `HFTokenizer`; `rlvr_torch.models.lora.adapters`: `attach`,
  `without_adapter`; `rlvr_torch.models.save`: `save_net`, `load_weights`.
- `rlvr_torch.generation.engine`: `Engine` - batched generation, in the ways of a CPU;
  `rlvr_torch.hardware.primitives`: `Hardware`, `hardware_of` - those of any device, and their
  plain versions; `rlvr_torch.generation.captured.engine`: `CapturedEngine` - that of a GPU;
  `...captured.attention`: `DecodeAttention`; `...captured.graphs`: `Capture` - its primitives.
- `rlvr_torch.training.logprobs`: `sequence_logprobs`, `ChunkedLogprobs` - logprobs without full
  logits; `rlvr_torch.training.output_head`: `Head`, `Chunk`;
  `rlvr_torch.training.fused_loss`: `head_pass` - output head and loss in one pass;
  `rlvr_torch.training.accumulate`: `Learner`, `accumulate` - the gradient of a step.
- `rlvr_torch.training.packing.prefix_packing`: `supervised_hidden` - hidden states of one row
  without padding, shared prompts once; `rlvr_torch.runtime.batch_threads`: `BatchThreads` -
  threads that share a batch.
- `rlvr_torch.backend`: `TorchBackend`; `rlvr_torch.policy`: `TorchPolicy`;
  `rlvr_torch.config`: `TorchConfig` - what a run uses.
- `rlvr_torch.runtime.device`: `choose_device`; `rlvr_torch.training.optimizer`: `build_adamw`,
  `learning_rate`, `clip_gradients`; `rlvr_torch.training.microbatches`: `check_data`,
  `microbatches` - for backends built on this one.
"""
