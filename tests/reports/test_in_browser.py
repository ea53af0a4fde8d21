"""Report pages in a real browser: they fit narrow screens, and the CSP blocks nothing in them."""

from typing import Any

from playwright.async_api import Browser

from app.reports.session.page import render as session_page
from app.reports.version.page import render as version_page
from tests.pages.conftest import chromium  # noqa: F401  a fixture
from tests.reports.test_session_report import KINDS
from tests.reports.test_version_report import card, facts, report

_WIDTHS = (320, 390, 1280)
_MEASURED = """() => {
  const charts = [...document.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
  return {
    wide: document.documentElement.scrollWidth,
    unsigned: [...document.querySelectorAll(".wide")].filter(
      one => one.scrollWidth > one.clientWidth && getComputedStyle(one).backgroundImage == "none"
    ).length,
    flat: charts.filter(box => box.height < 40 || box.width < 200).length,
    paper: getComputedStyle(document.body).backgroundColor,
    heading: document.querySelector("h1").textContent,
  };
}"""


async def test_pages_fit_screens_of_every_width(chromium: Browser) -> None:  # noqa: F811  a fixture
    pages = {name: session_page(make()) for name, make in KINDS.items()}
    pages["version"] = version_page(report(calibration=facts(), simulated=card()))
    page = await chromium.new_page()
    for name, text in pages.items():
        await page.set_content(text)
        for width in _WIDTHS:
            await page.set_viewport_size({"width": width, "height": 900})
            found: dict[str, Any] = await page.evaluate(_MEASURED)
            assert found["wide"] <= width, (name, width, found)
            assert found["flat"] == found["unsigned"] == 0, (name, width, found)
            assert found["paper"] == "rgb(255, 255, 255)", found  # its style sheet was accepted
            assert found["heading"]
