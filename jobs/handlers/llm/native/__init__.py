"""The handlers `llm.call`, for a request in a provider's own form, and `llm.embed`, which turns texts into vectors."""
