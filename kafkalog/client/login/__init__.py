"""How a client protects its connections and proves who it is: TLS, SASL mechanisms, tokens."""
