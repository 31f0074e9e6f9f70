"""What several test folders share: expected answers, batch builders, child programs."""
