"""Untrusted text in, one governed SELECT out: the gate every draft of SQL passes, whoever wrote it."""
