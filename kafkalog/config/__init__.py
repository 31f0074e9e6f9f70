"""Every setting once: how one is declared, and those of topics, groups and brokers."""
