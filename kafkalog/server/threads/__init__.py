"""The threads of a broker: workers, acknowledgements, what is large, a clock's ticks."""
