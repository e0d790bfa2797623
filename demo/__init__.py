"""
The first work of a new installation: two batches against the sandbox, and an allowance that users have partly used.
"""
