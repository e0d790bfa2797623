"""The doors that official clients know: OpenAI's at /openai/v1/, Anthropic's at /anthropic/v1/."""
