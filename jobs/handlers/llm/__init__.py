"""`llm.generate`: Gemini and OpenAI-compatible servers."""
