"""Which legs a question needs, from its words, and whether what is granted can hold the answer. Plain values in and out."""
