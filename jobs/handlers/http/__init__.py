"""`http.request`, and what is kept of answers."""
