"""The rules of docs/style.md that a machine can check: one test each, which names all offenders."""
