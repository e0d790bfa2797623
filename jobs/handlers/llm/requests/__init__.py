"""A request to a language model: its payload, and what of it goes to which provider."""
