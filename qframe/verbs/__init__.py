"""Verbs and their parameters: what can be asked and done, declared once for every door."""
