"""Jobs: their list, the page of one with its timeline, and what a person may do with them."""
