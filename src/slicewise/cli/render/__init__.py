"""Answers as people read them: text, tables and charts."""
