"""The batch APIs of the providers of language models."""
