"""The ingestion line: list -> parse -> chunk -> label -> embed -> store -> manifest. `build.py` is the line itself."""
