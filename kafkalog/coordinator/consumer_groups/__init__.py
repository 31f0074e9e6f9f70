"""Consumer groups whose members heartbeat (KIP-848), as state machines over a journal."""
