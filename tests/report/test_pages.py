"""What every page promises, whatever it is about."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from congruence.errors import InputError
from congruence.report import html
from congruence.report.figures.svg import PALETTE

BAD = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def mixed(front, back, share):
    pairs = [(int(front[i : i + 2], 16), int(back[i : i + 2], 16)) for i in (1, 3, 5)]
    return "#" + "".join(f"{round(share * a + (1 - share) * b):02x}" for a, b in pairs)


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_every_colour_that_writes_is_readable_on_both_backgrounds(scheme):
    for name in ("ink", "muted", "c-heldout", "c-null", "c-linear", "c-source", "c-ica"):
        for background in ("page", "card"):
            assert contrast(PALETTE[name][scheme], PALETTE[background][scheme]) > 4.5, name


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_numbers_are_readable_on_every_cell_of_the_heat_map(scheme):
    strongest = mixed(PALETTE["c-heat"][scheme], PALETTE["page"][scheme], 0.9)
    assert contrast(PALETTE["ink"][scheme], strongest) > 4.5


def test_a_page_is_well_formed_and_its_ids_are_unique(any_page, outline):
    page = outline(any_page)
    assert not page.open
    assert not page.misplaced
    ids = [value for _, name, value in page.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = [value[1:] for _, name, value in page.attributes if name == "href" and value.startswith("#")]
    assert links
    assert set(links) <= set(ids)


def test_a_page_asks_for_nothing_from_elsewhere(any_page, outline):
    assert set(re.findall(r"https?://[^\"' <)]*", any_page)) == {"http://www.w3.org/2000/svg"}
    assert "default-src 'none'" in any_page
    assert "@import" not in any_page
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", any_page))
    sources = [value for _, name, value in outline(any_page).attributes if name in ("src", "href", "srcset", "action")]
    assert all(value.startswith(("#", "data:image/png;base64,")) or value == "data:," for value in sources)


def test_a_page_is_small_and_tells_how_it_was_made(any_page):
    assert len(any_page.encode()) < 1_000_000
    for part in ("How to read this</h2>", "How this was made</h2>", "<h3>Settings</h3>", "<h3>Versions</h3>"):
        assert any_page.count(part) == 1


def test_every_scrolling_region_has_a_name_and_can_be_focused(any_page):
    regions = re.findall(r'<div class="scroll[^>]*>', any_page)
    assert regions
    assert all('tabindex="0" role="region" aria-label="' in region for region in regions)


def test_every_heading_of_a_sortable_table_is_a_button(any_page):
    heads = re.findall(r'<table class="sortable.*?</thead>', any_page, re.DOTALL)
    assert heads or "without paired rows" in any_page  # the page of an unpaired map has no table to sort
    assert all(head.count("<th scope") == head.count('<button type="button">') > 1 for head in heads)


def test_the_same_result_gives_the_same_bytes(result_name, results, page_file, render_figures):
    assert render_figures(results[result_name]()) == page_file(result_name).read_text(encoding="utf-8")


def test_names_cannot_inject_markup(make_comparison, outline, render_figures):
    page = render_figures(make_comparison((BAD, "b"), headlines=(f"{BAD} holds.", BAD), notes=[BAD]))
    assert page.count("<script") == 1
    assert "<img" not in page
    assert not outline(page).misplaced
    assert BAD in outline(page).text


def test_ids_at_the_pointer_cannot_inject_markup(make_comparison, outline, render_figures):
    ids, plates = np.array([f"{BAD}{i}" for i in range(400)]), np.array([BAD] * 400)
    result = make_comparison(ids=ids, metadata={BAD: plates}, color=plates)
    result = replace(result, settings={**result.settings, "color": BAD})
    page = render_figures(result)
    assert page.count("<script") == 1
    assert "<img" not in page
    assert not outline(page).misplaced
    (hover,) = [json.loads(value) for _, name, value in outline(page).attributes if name == "data-hover"]
    assert hover["texts"][0].startswith("<script>")


def test_the_page_runs_its_own_script_and_no_other(any_page):
    (script,) = re.findall(r"<script>(.*?)</script>", any_page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in any_page
    assert script.count("\n") < 150


def test_a_report_is_written_whole_or_not_at_all(make_layers, render_figures, tmp_path, monkeypatch):
    result = make_layers()
    path = tmp_path / "report.html"
    assert result.report(path) == path
    assert path.read_text(encoding="utf-8") == render_figures(result)
    monkeypatch.setattr(html, "render_html", lambda document: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        result.report(path)
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_path_that_cannot_be_written_is_refused_before_any_work(make_result, tmp_path, monkeypatch):
    monkeypatch.setattr(html, "render_html", lambda document: pytest.fail("worked in vain"))
    with pytest.raises(InputError, match="does not exist"):
        make_result().report(tmp_path / "missing" / "report.html")
    with pytest.raises(InputError, match=r"must end in \.html"):
        make_result().report(tmp_path / "report.pdf")


def test_importing_the_report_is_light():
    code = "import sys, congruence.report; print(sorted({'matplotlib', 'jinja2', 'scipy', 'torch'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
