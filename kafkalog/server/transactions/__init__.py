"""A broker's part in transactions besides the coordinator: ids, guards, markers."""
