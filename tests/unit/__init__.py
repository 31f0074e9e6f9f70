"""What each part of the package promises: the folders match the package's."""
