"""Client of QueueOps."""
