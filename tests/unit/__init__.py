"""What each part of the package promises: the folders are the package's."""
