"""Values as people and providers write them: times, numbers, texts, secrets."""
