"""Close codes: for each reason the code and the message."""

COME_BACK = 4000  # the code for what ends with time
CLOSING = {  # by the word that is said: the code, and what to do
    "draining": (4001, "this instance is stopping; come back, another one serves you"),
    "slow": (4008, "what was sent to you was not read in time; what you held is kept for you"),
    "silent": (4010, "nothing was heard of you, not even a pong"),
    "too_many_connections": (4029, "this instance has as many connections as it may; come back later"),
    "unauthorized": (4501, "the key or token of this session is no longer valid"),
    "protocol_violation": (
        4503,
        "no auth frame came in time; the first frame must be one, also with Authorization: Bearer",
    ),
    "replaced": (4509, "a newer session serves this agent's mailbox, or the agent was deleted"),
    "token_expired": (4511, "the token has expired; come back with a fresh one, or renew it with an auth frame before"),
    "rate_limited": (COME_BACK, "too many new agents came to be at once; come back later"),
    "busy": (COME_BACK, "a session that came later serves this agent's mailbox; come back to take over"),
    "store_unavailable": (COME_BACK, "the store does not answer; come back"),
}
