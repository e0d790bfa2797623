"""The base of the pages of figures: reads that are kept for a while, and their form on the wire."""
