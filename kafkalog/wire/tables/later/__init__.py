"""APIs that are declared, and neither served nor sent."""
