"""One real Chromium for all tests of the page; without one they fail, they are never skipped."""

import pytest

from slicewise_testbed.browser import Browser


@pytest.fixture(scope="session")
def browser():
    with Browser() as browser:
        yield browser


@pytest.fixture
def look(browser):
    """Opens pages that are closed again; whatever a page complains of fails the test."""
    pages = []

    def open_page(url, **facts):
        page = browser.open(url, **facts)
        pages.append(page)
        page.wait("document.querySelector('#state')?.dataset.state === 'live'")
        return page

    yield open_page
    complaints = [each for page in pages for each in page.complaints]
    for page in pages:
        page.close()
    assert complaints == []
