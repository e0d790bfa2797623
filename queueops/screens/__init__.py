"""What the screens of all apps are made of."""
