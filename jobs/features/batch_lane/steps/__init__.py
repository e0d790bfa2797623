"""Sending, following and settling batches at providers, step by step."""
