"""The rules of docs/style.md that a machine can hold: a test a rule, which names all offenders."""
