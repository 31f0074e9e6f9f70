"""One node's replica of the metadata log and, while it leads, the active controller."""
