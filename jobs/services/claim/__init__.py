"""Which jobs go next: what limits let through of each lane, and what waits."""
