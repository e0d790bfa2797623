"""The doors: providers' APIs, offered to their official clients at /openai/v1/ and /anthropic/v1/."""
