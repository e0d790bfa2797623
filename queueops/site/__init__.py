"""The roof: what joins all apps into one installation. Nothing imports it."""
