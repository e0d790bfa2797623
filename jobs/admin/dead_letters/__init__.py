"""Dead letters: their list by cause, and requeueing, discarding and exporting them."""
