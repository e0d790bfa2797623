"""A request to a language model: its payload, its parts, and the schema of its answer."""
