"""Sending, following and settling batches at providers, round by round."""
