"""The parts of which the screens of all apps are made."""
