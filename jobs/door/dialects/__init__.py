"""The views at the addresses that official clients call, a module for each provider's API."""
