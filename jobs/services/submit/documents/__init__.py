"""Reading many jobs at once: lines, tables, files that payloads name, and what would become of them."""
