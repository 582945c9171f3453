"""llama.cpp, which runs language models in GGUF files."""
