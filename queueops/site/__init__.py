"""The roof, which joins all apps into one installation. Nothing imports it."""
