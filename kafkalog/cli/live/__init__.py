"""A cluster on the terminal as it changes: `kafkalog top`, `kafkalog groups --watch`.

panes       the tables and their columns (pure)
watch       samples a cluster again and again
plain       one look, as tables or JSON
app         the live view, with textual
"""
