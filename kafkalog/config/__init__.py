"""All settings, each declared once: of topics, groups, brokers and clients.

One module per scope of settings, a few for rules between them, and `declare`, the base of all.
"""
