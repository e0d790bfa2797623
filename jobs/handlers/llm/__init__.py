"""Language models: a request, its answer, and the providers that give it."""
