"""What people do with work: by hand, in bulk, with dead letters and pauses."""
