"""Who calls the API, by what proof, what that opens, and how often."""
