"""Requests that a cluster's controller answers, on a single node and on a member of a cluster."""
