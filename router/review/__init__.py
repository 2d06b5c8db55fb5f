"""For reviewers: what the policy folder says, through the code that enforces it. No second resolver exists here."""
