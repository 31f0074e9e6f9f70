"""The client of share groups (KIP-932): members, share sessions, acknowledgements."""
