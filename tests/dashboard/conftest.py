"""One real Chromium for all tests of the page; without one they fail, they are never skipped."""

import pytest

from slicewise_testbed.browser import Browser


@pytest.fixture(scope="session")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def look(browser):
    """Opens pages that are closed again; whatever a page complains of fails the test.

    A test that breaks connections forgives what the browser says of them.
    """
    pages = []

    def open_page(url, forgive=None, **facts):
        page = browser.open(url, **facts)
        pages.append((page, forgive))
        page.wait("document.querySelector('#state')?.dataset.state === 'live'")
        return page

    yield open_page
    for page, _ in pages:
        page.close()
    complaints = [
        each
        for page, forgive in pages
        for each in page.complaints
        if forgive is None or forgive not in each
    ]
    assert complaints == []
