"""Which questions are about what another version replaced."""

from datetime import UTC, datetime

import pytest

from router.document_leg import asks_for_older

NOW = datetime(2026, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        "What was the former limit?",
        "Which approvals did the old policy need?",
        "What did version 2 say about travel?",
        "What was the limit in 2024?",
        "the previous edition of the handbook",
        "What did the rules say in March 2025 about overtime?",
        "superseded limits of depot leads",
    ],
)
def test_what_no_longer_holds_is_asked_for(text):
    assert asks_for_older(text, NOW)


@pytest.mark.parametrize(
    "text",
    [
        "Which limit holds above 15,000 euro in 2026?",
        "Who must approve a repair free of charge of 2000 euro?",
        "Who approves from 2000 € on?",
        "Which claims were opened in 2031, and who approves them?",
        "How many claims are older than 30 days?",
        "How old may a part be?",
        "May a claim that is 90 days old be reopened?",
        "Until when does the exception hold?",
        "What is the limit from 2027 on?",
        "What is the status of claim CLM-2023-0117?",
        "Did it arrive earlier than planned, and what does the rule say?",
    ],
)
def test_what_holds_is_asked_for(text):
    assert not asks_for_older(text, NOW)
