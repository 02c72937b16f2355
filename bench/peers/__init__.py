"""The same work on this relay and on its peers, each with a load program as lean as the others'."""
