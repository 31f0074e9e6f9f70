"""Transactions: which producer may use a transactional id, and how its transactions end."""
