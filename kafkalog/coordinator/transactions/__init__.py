"""Transactions: which producer may write under a transactional id, and how its records end."""
