"""Parts that the screens of all apps use."""
