"""A terminal debugger for LLM serving."""

__version__ = "0.1.0"
