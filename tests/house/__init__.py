"""The rules of docs/style.md that a machine can hold."""
