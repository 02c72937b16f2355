"""The doctor: finds faults in a set-up, with the command that repairs each."""
