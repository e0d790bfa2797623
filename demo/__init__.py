"""What a new installation shows at first: two batches against the sandbox, and an allowance with some use of it."""
