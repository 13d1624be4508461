"""LoRA adapters, and the base model that each was made for."""
