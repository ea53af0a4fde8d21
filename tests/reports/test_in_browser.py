"""Report pages in a real browser: they fit narrow screens, and the CSP blocks nothing in them."""

import html
import json
import shutil
import subprocess
from pathlib import Path

import pytest

from app.reports.session.page import render as session_page
from app.reports.version.page import render as version_page
from tests.reports.test_session_report import KINDS
from tests.reports.test_version_report import card, facts, report

#: Without messages or requests of its own.
_FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
_WIDTHS = (320, 390, 1280)
# Loads each page in frames of several widths and writes its measurements to the document.
_HARNESS = """<!doctype html><meta charset="utf-8"><body><script>
const pages = %s, widths = %s, found = [];
const jobs = Object.entries(pages).flatMap(
  ([name, text]) => widths.map(width => [name, text, width]));
Promise.all(jobs.map(([name, text, width]) => new Promise(done => {
  const frame = document.createElement("iframe");
  frame.style.width = width + "px";
  frame.style.border = 0;
  frame.onload = () => {
    const page = frame.contentDocument;
    const charts = [...page.querySelectorAll("svg")].map(svg => svg.getBoundingClientRect());
    found.push({
      name, width, wide: page.documentElement.scrollWidth,
      unsigned: [...page.querySelectorAll(".wide")].filter(
        one => one.scrollWidth > one.clientWidth && getComputedStyle(one).backgroundImage == "none"
      ).length,
      flat: charts.filter(box => box.height < 40 || box.width < 200).length,
      paper: getComputedStyle(page.body).backgroundColor,
      heading: page.querySelector("h1").textContent,
    });
    done();
  };
  frame.srcdoc = text;
  document.body.append(frame);
}))).then(() => {
  const result = document.createElement("pre");
  result.textContent = JSON.stringify(found);
  document.body.replaceChildren(result);
});
</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        pytest.skip("no Chromium on this machine: apt-get install chromium")
    return found


def test_pages_fit_screens_of_every_width(browser: str, tmp_path: Path) -> None:
    pages = {name: session_page(make()) for name, make in KINDS.items()}
    pages["version"] = version_page(report(calibration=facts(), simulated=card()))
    harness = tmp_path / "harness.html"
    # "</" would end the script.
    texts = json.dumps(pages).replace("</", "<\\/")
    harness.write_text(_HARNESS % (texts, json.dumps(_WIDTHS)), encoding="utf-8")
    shown = subprocess.run(
        [browser, *_FLAGS, f"--user-data-dir={tmp_path / 'profile'}", "--virtual-time-budget=20000",
         "--dump-dom", harness.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    text = shown.stdout.partition("<pre>")[2].partition("</pre>")[0]
    found = json.loads(html.unescape(text))
    assert len(found) == len(pages) * len(_WIDTHS)
    for page in found:
        assert page["wide"] <= page["width"], page
        assert page["flat"] == page["unsigned"] == 0, page
        assert page["paper"] == "rgb(255, 255, 255)", page  # its style sheet was accepted
        assert page["heading"]
