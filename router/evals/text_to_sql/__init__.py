"""Text-to-SQL judged by execution, on anybody's questions: schemas, made-up rows, gold, judge and the run."""
