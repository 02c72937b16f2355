"""One session: frames in, deliveries, settlements, receipts, and answers out."""
