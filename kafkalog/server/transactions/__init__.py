"""What a broker does for transactions besides their coordinator: ids, guards, markers."""
