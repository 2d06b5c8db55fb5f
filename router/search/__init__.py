"""Strategies: which searches a question is worth. Each is one generator in a small file, behind the port in `port.py`."""
