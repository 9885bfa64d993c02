"""The spine's tests draw a plain page, so that they fail for the spine's faults only and start quickly."""

from __future__ import annotations

import pytest
from tests.runs.asking import plain_page


@pytest.fixture(autouse=True)
def _plain_page(request, monkeypatch):
    if "check_study" not in request.function.__code__.co_names:
        plain_page(monkeypatch.setattr)
