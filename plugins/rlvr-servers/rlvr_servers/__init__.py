"""rlvr-servers: samples from models that an OpenAI-compatible server holds."""
