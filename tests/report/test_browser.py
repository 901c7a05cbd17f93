"""The page in a real browser: it draws, sorts, folds and fits."""

import shutil
from xml.etree import ElementTree

import numpy as np
import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
PAGES = ["report", "rich", "training", "translation", "unpaired", "layers", "resolution", "stability", "evaluation"]
PAGES += [
    "check",
    "features",
    "many codes",
    "deconfounding",
    "decoder",
    "mechanism",
    "mixture",
    "mixtures",
    "reproduction",
]
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium, chromium-browser or google-chrome on the PATH")


def many_shares():
    """The information of a hundred codes about six factors: each factor has one code of its own, the rest is noise."""
    shares = np.random.default_rng(0).uniform(0, 0.04, size=(6, 100))
    shares[range(6), range(50, 56)] = 0.9
    return shares


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking"]
    with playwright.sync_playwright() as p:
        chromium = p.chromium.launch(executable_path=CHROMIUM, args=options)
        yield chromium
        chromium.close()


@pytest.fixture(scope="module")
def report(tmp_path_factory, make_pair, make_nearness, make_comparison):
    names = ["seed 2", "seed 10", "a_name_without_any_place_to_break_it_" * 4]
    pairs = make_comparison(names).pairs
    pairs[1] = make_pair(names[0], names[2], groups={"rigid": make_nearness("rigid", 9e-7)})  # no similarity
    path = tmp_path_factory.mktemp("report") / "report.html"
    make_comparison(names, pairs, notes=["Use more rows."]).report(path)
    return path


@pytest.fixture(scope="module")
def folder(report, page_file, make_layers, make_unpaired, make_evaluation):
    """All kinds of pages in one folder."""
    large = {"unpaired": make_unpaired(), "layers": make_layers(5, 6)}
    large |= {"many codes": make_evaluation(many_shares())}
    for name in PAGES[1:]:
        path = report.with_name(f"{name}.html")
        if name in large:
            large[name].report(path)
        else:
            shutil.copy(page_file(name), path)
    return report.parent


@pytest.fixture
def visit(browser, folder):
    """Open a page; fail on anything it logs, throws or asks for."""
    contexts = []

    def open_page(scheme="light", width=1200, name="report"):
        context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
        contexts.append(context)
        context.set_default_timeout(60_000)
        page = context.new_page()
        page.complaints, page.requests = [], []
        page.on("console", lambda message: page.complaints.append(message.text))
        page.on("pageerror", lambda error: page.complaints.append(str(error)))
        page.on("request", lambda request: page.requests.append(request.url))
        page.goto((folder / f"{name}.html").as_uri())
        return page

    yield open_page
    for context in contexts:
        context.close()


def colours(page):
    return page.evaluate("(({color, backgroundColor}) => [color, backgroundColor])(getComputedStyle(document.body))")


def column(page, number):
    cells = page.locator("table.sortable").first.locator(f"tbody tr > :nth-child({number})")
    return [cell.get_attribute("data-value") for cell in cells.all()]


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize(("scheme", "width"), [("light", 400), ("dark", 1200)])
def test_a_page_opens_without_an_error_or_a_request_and_fits(visit, folder, scheme, width, name):
    page = visit(scheme, width, name)
    assert page.complaints == []
    assert page.requests == [(folder / f"{name}.html").as_uri()]
    if width == 400:  # text in figures does not shrink below ten pixels
        sizes = page.evaluate("""[...document.querySelectorAll('svg text')].filter(e => e.checkVisibility()).map(e => {
            const {a, b} = e.getScreenCTM(); return parseFloat(getComputedStyle(e).fontSize) * Math.hypot(a, b); })""")
        few = {"mechanism": 2, "mixture": 2, "unpaired": 10}  # those have one small figure
        assert len(sizes) > few.get(name, 20)
        assert min(sizes) >= 10
    page.evaluate("document.querySelectorAll('details').forEach(one => { one.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_light_and_dark_exchange_ink_and_paper(visit):
    def lightness(colour):
        return sum(int(part) for part in colour.strip("rgb()").split(","))

    ink, paper = map(lightness, colours(visit("light")))
    assert ink < 150 < 700 < paper
    ink, paper = map(lightness, colours(visit("dark")))
    assert ink > 650 > 100 > paper


def test_figures_follow_the_scheme(visit):
    script = "getComputedStyle(document.querySelector('figure svg text')).fill"
    assert visit("light").evaluate(script) != visit("dark").evaluate(script)


def test_figures_are_drawn_in_the_font_of_the_page(visit):
    page = visit()
    family = "e => getComputedStyle(e).fontFamily"
    assert page.locator("figure svg text").first.evaluate(family) == page.locator("body").evaluate(family)


@pytest.mark.parametrize(("name", "count"), [("report", 1), ("translation", 1)])
def test_on_a_phone_further_numbers_need_no_scrolling(visit, name, count):
    boxes = visit(width=400, name=name).locator(".scroll:has(.facts):visible")
    assert boxes.evaluate_all("all => all.map(e => e.scrollWidth - e.clientWidth)") == [0] * count


def test_labels_below_the_ladder_do_not_overlap(visit):
    page = visit()
    script = """[...document.querySelectorAll('details[open] figure:first-child svg text')].map(e => {
        const {left, right, top, bottom} = e.getBoundingClientRect(); return [left, top, right, bottom]; })"""
    boxes = page.evaluate(script)
    assert len(boxes) > 15
    for i, (left, top, right, bottom) in enumerate(boxes):
        for other in boxes[i + 1 :]:
            apart = right <= other[0] or other[2] <= left or bottom <= other[1] + 3 or other[3] <= top + 3
            assert apart, (boxes[i], other)


def test_clicking_a_heading_sorts_numbers_up_then_down_with_missing_last(visit):
    page = visit()
    heading = page.locator("th", has=page.get_by_role("button", name="similarity", exact=True))
    heading.get_by_role("button").click()
    up = column(page, 6)
    assert heading.get_attribute("aria-sort") == "ascending"
    assert up[-1] == ""
    numbers = [float(value) for value in up[:-1]]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == 2
    heading.get_by_role("button").click()
    down = column(page, 6)
    assert heading.get_attribute("aria-sort") == "descending"
    assert down == [*reversed(up[:-1]), ""]


def test_tiny_numbers_sort_as_numbers(visit):
    page = visit()
    page.get_by_role("button", name="rigid", exact=True).click()
    assert float(column(page, 5)[0]) == pytest.approx(9e-7 / 0.25)


def test_sorting_works_from_the_keyboard_and_names_sort_naturally(visit):
    page = visit()
    page.get_by_role("button", name="pair", exact=True).focus()
    page.keyboard.press("Enter")
    page.keyboard.press("Enter")
    names = page.locator("table.sortable").first.locator("tbody th").all_inner_texts()
    assert [name.split("→")[0].strip() for name in names][:2] == ["seed 10", "seed 2"]
    assert page.locator("th[aria-sort]").count() == 1


def test_the_first_pair_is_open_and_the_others_open_on_request(visit):
    page = visit()
    states = page.locator("details").evaluate_all("all => all.map(one => one.open)")
    assert states == [True, False, False]
    page.locator("summary").nth(1).click()
    assert page.locator("details").nth(1).locator("svg").first.is_visible()
    page.locator("table.sortable tbody a").nth(2).click()
    page.locator("#pair-3[open]").wait_for(state="attached")
    assert page.complaints == []


def test_printing_opens_every_pair(visit):
    page = visit()
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.locator("details[open]").count() == 3


def test_rows_that_moved_are_listed_from_the_top_and_sorted_by_what_is_clicked(visit):
    page = visit(name="rich")
    table = page.get_by_role("region", name="The rows that differ most").locator("table")
    names = table.locator("tbody th")
    assert names.first.inner_text() == "CHEMBL0"
    table.get_by_role("button", name="disagreement", exact=True).click()
    assert names.last.inner_text() == "CHEMBL0"
    table.get_by_role("button", name="logP", exact=True).click()
    assert names.first.inner_text() == "CHEMBL0"
    table.get_by_role("button", name="logP", exact=True).click()
    assert names.last.inner_text() == "CHEMBL0"


def test_a_learning_curve_sorts_by_its_rows(visit):
    page = visit(name="translation")
    table = page.get_by_role("region", name="Recall@10 by number of paired rows").locator("table")
    rows = table.locator("tbody th")
    fewest = rows.first.inner_text()
    for _ in range(2):  # first by rising, then by falling recall, or the reverse
        table.get_by_role("button", name="recall@10, range of draws", exact=True).click()
        if rows.first.inner_text() != fewest:
            break
    assert int(rows.first.inner_text()) > int(fewest)


def test_components_sort_by_what_is_clicked_and_their_rows_open_on_request(visit):
    page = visit(name="resolution")
    table = page.get_by_role("region", name="Components", exact=True).locator("table")
    names = table.locator("tbody th")
    assert names.first.inner_text() == "ica0"
    table.get_by_role("button", name="kurtosis", exact=True).click()
    assert names.first.inner_text() == "ica5"
    states = page.locator("details").evaluate_all("all => all.map(one => one.open)")
    assert states == [True] + [False] * 5
    page.locator("summary").nth(2).click()
    assert page.get_by_role("region", name="ica2, highest").is_visible()


def test_small_histograms_stand_side_by_side_even_on_a_phone(visit):
    boxes = "all => all.map(e => [e.getBoundingClientRect().top, e.scrollWidth - e.clientWidth])"
    for width, columns in ((400, 2), (1200, 4)):
        figures = visit(width=width, name="resolution").locator(".small figure").evaluate_all(boxes)
        assert sum(top == figures[0][0] for top, _ in figures) == columns
        assert max(over for _, over in figures) == 0


def test_the_table_of_components_fits_a_desktop(visit):
    region = visit(width=1000, name="resolution").get_by_role("region", name="Components", exact=True)
    assert region.evaluate("e => e.scrollWidth - e.clientWidth") == 0


def test_scores_sort_by_value(visit):
    page = visit(name="evaluation")
    table = page.get_by_role("region", name="Scores", exact=True).locator("table")
    table.get_by_role("button", name="value", exact=True).click()
    names = [cell.inner_text().split("\n")[0] for cell in table.locator("tbody th").all()]
    assert names == ["IRS", "Total correlation", "InfoE", "InfoM"]


def test_numbers_on_the_heat_map_have_a_colour_behind_them(visit):
    page = visit(name="evaluation")
    page.locator("details", has_text="Numbers").first.locator("summary").click()
    cell = page.get_by_role("region", name="Information of codes and factors").locator("td").first
    assert cell.evaluate("e => getComputedStyle(e, '::before').opacity") == "0.81"
    assert cell.locator("bdi").get_attribute("title") == "size, z1: 0.900"
    boxes = page.locator(".gauge").evaluate_all("all => all.map(e => e.getBoundingClientRect().width)")
    assert boxes == [150] * 4


def test_the_tables_of_scores_and_factors_and_the_heat_maps_fit_a_desktop(visit):
    for name in ("evaluation", "many codes"):
        page = visit(width=1000, name=name)
        for label in ("Scores", "Factors"):
            region = page.get_by_role("region", name=label, exact=True)
            assert region.evaluate("e => e.scrollWidth - e.clientWidth") == 0, (name, label)
        heat = page.locator("figure").first
        assert heat.evaluate("e => e.scrollWidth - e.clientWidth") == 0, name


def first_mark(page, selector):
    """The place of the first point of a figure on the screen, and its text."""
    page.locator(selector).first.scroll_into_view_if_needed()
    return page.evaluate(
        """selector => { const svg = document.querySelector(selector), {texts, marks} = JSON.parse(svg.dataset.hover);
        const [x, y, text] = marks[0][2][0], {x: left, y: top} = new DOMPoint(x, y).matrixTransform(svg.getScreenCTM());
        return [left, top, texts[text]]; }""",
        selector,
    )


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("check", ["<b>0</b>", "plate: 0"]),
        ("layers", ["layers.0 → $l_0$", "similarity error, of chance: ", "of the diameter: ", "p: "]),
        ("features", ["feature ", "nearest ", ", cosine "]),
        ("deconfounding", ["random rotation, MTOR: −0.010"]),
        ("resolution", ["ica0, identified: "]),
        ("evaluation", ["size, z1: 0.90"]),
    ],
)
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 400)])
def test_the_pointer_shows_what_a_mark_is(visit, name, words, scheme, width):
    page = visit(scheme, width, name)
    x, y, text = first_mark(page, "svg[data-hover]")
    assert all(word in text for word in words)
    tip = page.locator(".tip")
    assert tip.is_hidden()
    page.mouse.move(x, y)
    assert tip.is_visible()
    assert tip.evaluate("e => e.childElementCount") == 0  # names are text, never markup
    box = tip.bounding_box()
    assert 0 <= box["x"] <= box["x"] + box["width"] <= width
    page.mouse.move(2, 2)
    assert tip.is_hidden()
    assert page.complaints == []


def test_the_arrow_keys_read_the_marks_in_turn(visit):
    page = visit(name="layers")
    svg, tip = page.locator("svg[data-hover]").first, page.locator(".tip")
    svg.focus()
    page.keyboard.press("ArrowRight")
    assert tip.inner_text() == first_mark(page, "svg[data-hover]")[2]
    page.keyboard.press("ArrowLeft")
    assert tip.inner_text().startswith("layers.4 → $l_5$")  # the last
    page.keyboard.press("Escape")
    assert tip.is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_figure_can_be_saved_as_svg_and_png(visit, tmp_path, scheme):
    from PIL import Image

    page = visit(scheme, name="check")
    figures = page.locator("details[open] figure")
    assert figures.count() > 2
    for figure in figures.all():
        for kind in ("SVG", "PNG"):
            button = figure.get_by_role("button", name=kind)
            button.focus()
            with page.expect_download() as started:
                page.keyboard.press("Enter")
            saved = tmp_path / started.value.suggested_filename
            started.value.save_as(saved)
        drawn, pixels = ElementTree.parse(saved.with_suffix(".svg")), np.asarray(Image.open(saved).convert("L"))
        sizes = [2 * float(drawn.getroot().get(side)) for side in ("height", "width")]
        assert np.abs(np.subtract(pixels.shape, sizes)).max() < 1
        assert len(np.unique(pixels)) > 20
        assert (pixels[2, 2] > 128) == (scheme == "light")
        text = saved.with_suffix(".svg").read_text(encoding="utf-8")
        assert "var(" not in text
        assert "data-hover" not in text
    assert page.complaints == []


def test_a_printed_page_has_no_buttons(visit):
    page = visit(name="check")
    page.emulate_media(media="print")
    assert page.locator(".export").first.is_hidden()


def test_without_scripts_the_page_is_whole(browser, folder):
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto((folder / "check.html").as_uri())
    assert page.locator("details[open] figure svg").first.is_visible()
    assert page.locator(".export, .tip").count() == 0
    context.close()
