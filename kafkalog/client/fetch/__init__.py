"""Fetches records from their leaders: sessions, leader epochs, and the order for the reader."""
