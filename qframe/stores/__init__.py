"""The parts that keep messages: one contract (`base`), and a folder for each store."""
