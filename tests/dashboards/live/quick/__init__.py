"""An app for web processes of tests: what takes a minute for people takes seconds."""
