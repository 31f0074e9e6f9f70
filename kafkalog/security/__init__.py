"""Security: principals, permissions, credentials and the rules about them, without I/O."""
