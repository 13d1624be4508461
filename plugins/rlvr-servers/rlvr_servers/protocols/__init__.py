"""Server protocols: vLLM, SGLang, OpenAI-style; what a server can do, and its tokenizer."""
