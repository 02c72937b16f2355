"""`relay up`: everything on one machine, and how it ends."""
