"""The addresses that official clients know."""
