"""Share groups (KIP-932): members that read the same partitions, record by record."""
