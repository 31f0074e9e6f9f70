"""All settings, each declared once: of topics, groups, brokers and clients."""
