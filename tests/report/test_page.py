import re
import subprocess
import sys
from html.parser import HTMLParser

import pytest

from congruence.errors import InputError
from congruence.report import html, render, write_report
from congruence.report.svg import PALETTE
from congruence.report.words import GROUPS, STATUSES

VOID = {"meta", "link", "br"}


class Outline(HTMLParser):
    """Tags that are opened and not closed in order, ids, attributes and visible text."""

    def __init__(self, page):
        super().__init__()
        self.open, self.misplaced, self.attributes, self.text = [], [], [], ""
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.attributes += [(tag, *attr) for attr in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.attributes += [(tag, *attr) for attr in attrs]

    def handle_endtag(self, tag):
        if not self.open or self.open.pop() != tag:
            self.misplaced.append(tag)

    def handle_data(self, data):
        if not {"style", "script"} & set(self.open):
            self.text += data


@pytest.fixture(scope="module")
def page(three):
    return render(three)


def front(comparison):
    """The page without figures, which take most of the time."""
    return html._page(comparison, [], "", 100)


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
    for name in ("ink", "muted", "c-heldout", "c-null", "c-linear", "c-source"):
        for background in ("page", "card"):
            assert contrast(PALETTE[name][scheme], PALETTE[background][scheme]) > 4.5, name


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_numbers_are_readable_on_every_cell_of_the_heat_map(scheme):
    strongest = mixed(PALETTE["c-heat"][scheme], PALETTE["page"][scheme], 0.9)
    assert contrast(PALETTE["ink"][scheme], strongest) > 4.5


def test_the_page_is_well_formed_and_its_ids_are_unique(page):
    outline = Outline(page)
    assert not outline.open
    assert not outline.misplaced
    ids = [value for _, name, value in outline.attributes if name == "id"]
    assert len(ids) == len(set(ids))
    links = [value[1:] for _, name, value in outline.attributes if name == "href" and value.startswith("#")]
    assert links
    assert set(links) <= set(ids)


def test_the_page_asks_for_nothing_from_elsewhere(page):
    assert set(re.findall(r"https?://[^\"' <)]*", page)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert all(target.startswith("#") for target in re.findall(r"url\(([^)]*)", page))
    sources = [value for _, name, value in Outline(page).attributes if name in ("src", "href", "srcset", "action")]
    assert all(value.startswith("#") or value == "data:," for value in sources)


def test_the_parts_come_in_the_order_a_reader_needs_them(page):
    parts = [
        "did the embeddings only rotate",
        "The difference is only a rotation and a scale.",
        "Only a rotation and a scale?",
        "All pairs",
        "How near is every run to every other?",
        "Pair by pair",
        "Further numbers",
        '<h2 id="reading">How to read this</h2>',
        "How this was made",
    ]
    places = [page.index(part) for part in parts]
    assert places == sorted(places)


def test_every_group_is_explained_in_one_line(page):
    text = Outline(page).text
    assert all(meaning in text for meaning in GROUPS.values())


def test_advice_is_shown_when_there_is_any(make_comparison, page):
    assert 'class="notes"' not in page
    assert "<li>Use more rows.</li>" in front(make_comparison(advice=["Use more rows."]))


@pytest.mark.parametrize("status", list(STATUSES))
def test_the_verdict_is_told_in_words_and_shape_not_only_in_colour(status, make_pair, make_comparison):
    page = front(make_comparison(pairs=[make_pair(status=status)]))
    claim = re.search(r'<p class="claim">.*?</p>', page, re.DOTALL)[0]
    mark, meaning = STATUSES[status]
    assert Outline(claim).text.split() == [
        "Only",
        "a",
        "rotation",
        "and",
        "a",
        "scale?",
        mark,
        status,
        *meaning.split(),
    ]


def test_one_pair_that_fails_makes_the_whole_fail_and_the_counts_are_told(page):
    claim = re.search(r'<p class="claim">.*?</p>', page, re.DOTALL)[0]
    assert "badge fails" in claim
    assert "fails for 1, ambiguous for 1, holds for 1 of 3 pairs" in claim


def test_further_numbers_are_there(page):
    text = Outline(page).text
    for words in ("MCC, strong", "0.410", "MCC, weak", "CKA", "0.980", "neighbour overlap", "76.0 %", "12.35", "exact"):
        assert words in text
    for words in ("ICA efficiency, held out", "94.7 %", "ICA efficiency, in sample", "5.00 % (null 25.0 %)"):
        assert words in text


def test_an_estimated_diameter_is_called_one(make_pair):
    assert "estimated" not in str(html._facts(make_pair()))
    assert "estimated" in str(html._facts(make_pair(diameter_exact=False)))


def test_settings_runs_and_versions_are_told(page):
    text = Outline(page).text
    for words in ("normalize", "none", "identity, permutation, rigid", "seed 10", "python", "numpy", "scikit-learn"):
        assert words in text


def test_undefined_numbers_print_as_a_dash_that_says_so(undefined):
    page = render(undefined)
    assert '<span title="undefined">–</span>' in page
    assert not re.search(r"\bnan\b", page, re.IGNORECASE)


def test_a_missing_group_leaves_an_empty_cell(make_pair, make_nearness, make_comparison):
    pairs = [make_pair("a", "b"), make_pair("b", "c", groups={"rigid": make_nearness("rigid", 0.5)})]
    assert '<td class="num" data-value=""></td>' in front(make_comparison("abc", pairs))


def test_two_runs_need_no_heat_map(comparison, page):
    assert "How near is every run" not in render(comparison)
    assert "How near is every run" in page


def test_names_cannot_inject_markup(make_comparison):
    bad = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>"
    page = render(make_comparison((bad, "b"), verdict=f"{bad} holds.", advice=[bad]))
    assert page.count("<script") == 1
    assert "<img" not in page
    assert not Outline(page).misplaced
    assert bad in Outline(page).text


def test_the_same_comparison_gives_the_same_bytes(make_comparison):
    assert render(make_comparison()) == render(make_comparison())


def test_190_pairs_stay_below_2_mb_and_say_how_many_are_shown(twenty_page):
    assert len(twenty_page.encode()) < 2_000_000
    assert twenty_page.count("<details") == html.SHOWN_PAIRS
    assert f"{html.SHOWN_PAIRS} of 190 pairs are shown in detail" in twenty_page
    assert twenty_page.count('<th scope="row" class="name">') == 190 + 20


def test_the_pairs_shown_of_many_are_the_worst(make_comparison):
    pairs = make_comparison([f"run {i}" for i in range(20)]).pairs
    chosen = html._worst(pairs, 3)
    assert [(pair.source, pair.target) for pair in chosen] == [
        ("run 18", "run 19"),
        ("run 17", "run 19"),
        ("run 17", "run 18"),
    ]


def test_the_limit_holds_for_thousands_of_pairs_with_long_names(make_pair, make_comparison, monkeypatch):
    monkeypatch.setattr(html, "SHOWN_PAIRS", 2)
    one = make_pair()
    names = [f"{'very/long/' * 25}{i}" for i in range(64)]
    pairs = [make_pair(a, b, groups=one.groups, plane=one.plane) for a in names for b in names if a < b]
    page = render(make_comparison(names, pairs))
    assert len(pairs) == 2016
    assert len(page.encode()) < 2_000_000
    assert re.search(r"The first \d+ of 2016 pairs are listed\.", page)
    assert "The first 40 of 64 runs are shown." in page


def test_a_report_is_written_whole_or_not_at_all(comparison, tmp_path, monkeypatch):
    path = tmp_path / "report.html"
    write_report(comparison, path)
    assert path.read_text(encoding="utf-8") == render(comparison)
    monkeypatch.setattr(html, "render", lambda comparison: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        write_report(comparison, path)
    assert path.read_text(encoding="utf-8").endswith("</html>")
    assert [file.name for file in tmp_path.iterdir()] == ["report.html"]


def test_a_path_that_cannot_be_written_is_refused_before_any_work(tmp_path, monkeypatch):
    monkeypatch.setattr(html, "render", lambda comparison: pytest.fail("worked in vain"))
    with pytest.raises(InputError, match="does not exist"):
        write_report(None, tmp_path / "missing" / "report.html")


def test_importing_the_report_is_light():
    code = "import sys, congruence.report; print(sorted({'matplotlib', 'jinja2', 'scipy', 'torch'} & set(sys.modules)))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
