"""`llm.call` and `llm.embed`: a provider's own request, and texts as vectors."""
