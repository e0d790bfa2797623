"""The doors, providers' APIs for their official clients: OpenAI's at /openai/v1/, Anthropic's at /anthropic/v1/."""
