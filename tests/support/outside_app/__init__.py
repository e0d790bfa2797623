"""An app that a site of its own and an installation both have."""
