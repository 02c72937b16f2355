"""What the relay does, independent of the transport: intake, delivery, settling, supervision."""
