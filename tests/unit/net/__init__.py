"""The C network side over real sockets."""
