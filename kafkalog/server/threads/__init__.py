"""A broker's threads: workers, acknowledgements, large requests, ISR checks, clock ticks."""
