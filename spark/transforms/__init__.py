"""Pure steps from one table to the next."""
