"""`http.request`, and the part of an answer that is stored."""
