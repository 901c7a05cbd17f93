"""Take a picture of the top of a report with headless Chromium: make_picture.py REPORT PNG."""

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

report, picture = Path(sys.argv[1]).resolve(), sys.argv[2]
with sync_playwright() as driver:
    browser = driver.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"])
    page = browser.new_page(viewport={"width": 1000, "height": 1480}, color_scheme="light")
    page.goto(report.as_uri())
    page.screenshot(path=picture)
    browser.close()
