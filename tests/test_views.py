"""HTML and plain-text views: what they show, and that nothing in them runs."""

import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest
from PIL import Image

from sklearn_clm import (
    ComponentSet,
    ComponentSets,
    ConformalSampler,
    NullCalibrationWarning,
    PredictionSet,
    PredictionSets,
)
from sklearn_clm.calibration import Claim
from sklearn_clm.policies import ExitPolicy

EVIL = (
    '<script>document.title = "run"</script><img src=x onerror="document.title=\'run\'"> & "done".'
)
SAFE = "The lungs are clear."


def answer(prompt="chest & heart", responses=(f"{SAFE} {EVIL}", f"{EVIL} {SAFE}")):
    return PredictionSet(
        prompt, responses, [0.91, 0.5], [1, 4], 5, 1.41, stopped=True, guaranteed=True
    )


def selection(prompt="chest & heart"):
    start = len(EVIL) + 1
    places = [
        [(1, (0, len(SAFE))), (4, (start, start + len(SAFE)))],
        [(4, (0, len(EVIL)))],
    ]
    return ComponentSet((SAFE, EVIL), [0.875, 0.75], places, answer(prompt), guaranteed=True)


class Reader(HTMLParser):
    """Text of a page, its tags, and what is bold."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.text, self.bold, self.titles = [], [], [], []
        self._depth = 0
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        assert not any(name.startswith("on") for name, _ in attributes)
        if tag == "b":
            self._depth += 1
            self.titles.append(dict(attributes).get("title"))

    def handle_endtag(self, tag):
        self._depth -= tag == "b"

    def handle_data(self, data):
        self.text.append(data)
        if self._depth:
            self.bold.append(data)


ALL_VIEWS = {
    "prediction set": lambda: answer(EVIL),
    "prediction sets": lambda: PredictionSets([answer(EVIL), answer()], k_max=5),
    "component set": lambda: selection(EVIL),
    "component sets": lambda: ComponentSets([selection(EVIL), selection()]),
}


@pytest.mark.parametrize("name", ALL_VIEWS)
def test_text_is_shown_and_never_becomes_a_tag(name):
    page = Reader(ALL_VIEWS[name]()._repr_html_())
    assert "script" not in page.tags
    assert "img" not in page.tags
    assert EVIL in "".join(page.text)


def test_trusted_components_are_bold_with_their_scores():
    page = Reader(selection()._repr_html_())
    assert page.bold == [SAFE, EVIL, SAFE]
    assert page.titles == ["score 0.875", "score 0.75", "score 0.875"]
    cells = "\n".join(page.text)
    # draws count from one: those of the responses, and those that hold the component
    for shown in ("2", "5", "0.91", "2, 5", "0.875", "5 draws, stopped, set score 1.41"):
        assert shown in cells


def test_plain_text():
    assert str(selection()) == (
        "chest & heart\n"
        f"  draw 2, quality 0.91: **{SAFE}** {EVIL}\n"
        f"  draw 5, quality 0.5: **{EVIL}** **{SAFE}**\n"
        "trusted components:\n"
        f"  0.875  {SAFE}  (draw 2, 5)\n"
        f"  0.75  {EVIL}  (draw 5)"
    )
    assert str(ComponentSets([selection()] * 2)).startswith("2 prompts, 4 trusted components\n\n")


def test_plain_text_steers_no_terminal():
    one = ComponentSet((), [], [], answer("\x1b[2Jprompt", ("\x1b]0;title\x07\nline", "")), True)
    assert "\x1b" not in str(one)
    assert "\x07" not in str(one)
    assert "\nline" in str(one)
    assert "\x1b" not in str(PredictionSets([one.prediction_set], k_max=5))


def test_nothing_selected_and_nothing_accepted():
    empty = PredictionSet("q", (), [], [], 5, -np.inf, stopped=False, guaranteed=False)
    one = ComponentSet((), [], [], empty, guaranteed=False)
    for view in (one._repr_html_(), empty._repr_html_()):
        assert "no response was accepted" in view.lower()
        assert "-inf" not in view
        assert "budget used up" in view
        assert "no guarantee" in view
    assert "no trusted component" in str(one)
    assert "(no response was accepted)" in str(one)


def test_every_view_says_which_guarantee_it_is():
    pac, marginal, null = (
        PredictionSet("q", ("a",), [0.5], [0], 1, 0.5, True, claim.holds, claim=claim)
        for claim in (
            Claim(0.3, 0.05),
            Claim(0.3, 0.05, guarantee="marginal"),
            Claim(0.3, 0.05, guarantee="marginal", null="nothing passed."),
        )
    )
    for one in (marginal, PredictionSets([pac, marginal], k_max=5)):
        for view in (str(one), repr(one), one._repr_html_()):
            assert "guaranteed on average" in view
    for one in (pac, null, PredictionSets([null, pac], k_max=5)):
        for view in (str(one), repr(one), one._repr_html_()):
            assert "average" not in view
    cells = Reader(PredictionSets([pac, marginal, null], k_max=5)._repr_html_()).text
    start = cells.index("with confidence")
    assert cells[start + 1 :].index("guaranteed on average") < cells[start + 1 :].index("no")
    assert "with confidence" in PredictionSets([pac], k_max=5)._repr_html_()
    assert "no guarantee" in str(null)
    assert list(PredictionSets([pac, marginal], k_max=5).to_frame()["guarantee"]) == [
        "pac",
        "marginal",
    ]


def test_many_sets_are_cut():
    sets = ComponentSets([selection()] * 30)
    assert "the first 20 are shown" in sets._repr_html_()
    assert sets._repr_html_().count("<table>") == 40
    assert "the first 20 are shown" in str(sets)


def test_numbers_and_strange_text():
    numbers = PredictionSet(np.array([1.5, 2.0]), (3.0,), [0.5], [0], 1, 0.5, True, True)
    one = ComponentSet((3.0,), [0.5], [[(0, None)]], numbers, True)
    assert Reader(one._repr_html_()).bold == ["3.0"]
    assert "**3.0**" in str(one)
    lonely = PredictionSet("q", ("\ud800 half",), [0.5], [0], 1, 0.5, True, True)
    lonely._repr_html_().encode("utf-8")


def test_overlapping_or_long_spans_lose_no_text():
    places = [[(1, (0, 10))], [(1, (5, 999))]]
    one = ComponentSet(("a", "b"), [0.5, 0.25], places, answer(), True)
    page = Reader(one._repr_html_())
    assert "".join(page.bold[:2]) == f"{SAFE} {EVIL}"


def test_images_are_shown():
    shown = selection(Image.new("RGB", (4, 2)))
    assert 'src="data:image/png;base64,' in shown._repr_html_()
    assert str(shown).startswith("image, 4 x 2 pixels\n")
    assert str(shown.prediction_set).startswith("image, 4 x 2 pixels -> {")


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.mark.skipif(CHROMIUM is None, reason="needs a chromium to open the page in")
def test_nothing_runs_in_a_browser(tmp_path):
    body = "".join(view()._repr_html_() for view in ALL_VIEWS.values())
    page = tmp_path / "page.html"
    page.write_text(f"<!doctype html><meta charset=utf-8><title>still</title>{body}", "utf-8")
    (tmp_path / "profile").mkdir()
    flags = (
        "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
        "--disable-background-networking --disable-component-update --disable-sync "
        "--virtual-time-budget=2000 --dump-dom"
    )
    found = subprocess.run(
        [CHROMIUM, *flags.split(), f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    ).stdout
    assert "<title>still</title>" in found
    assert "&lt;script&gt;" in found
    assert EVIL in "".join(Reader(found).text)


def test_the_question_of_a_chat_is_shown_and_long_instructions_are_cut():
    chat = [
        {"role": "system", "content": "Be careful. " * 50},
        {"role": "user", "content": "Earlier?"},
        {"role": "assistant", "content": None},
        {
            "role": "user",
            "content": [
                {"type": "image_url", "image_url": {"url": "data:"}},
                {"type": "text", "text": "What <is> it?"},
            ],
        },
    ]
    page = "".join(Reader(answer(chat)._repr_html_()).text)
    assert "…\nuser: Earlier?\nassistant: \nuser: [image_url] What <is> it?" in page
    sets = PredictionSets([answer(chat[:1] + chat[-1:])], k_max=5)
    for view in (str(sets), "".join(Reader(sets._repr_html_()).text)):
        assert "system: Be careful. Be careful." in view
        assert "user: [image_url] What <is> it?" in view
        assert "{'role" not in view
        assert view.count("Be careful.") < 6


def test_rows_of_numbers_are_told_by_the_first_ones():
    sets = PredictionSets([answer(np.arange(64) / 3), answer(np.array([1, 2]))], k_max=5)
    assert "[0, 0.3333, 0.6667, 1, … 64 numbers] -> {" in str(sets)
    assert "\n[1, 2] -> {" in str(sets)
    assert "array of shape (8, 8)" in str(PredictionSets([answer(np.ones((8, 8)))], k_max=5))


def test_one_is_singular():
    one = PredictionSet("q", ("a",), [0.5], [0], 1, 0.5, True, True)
    sets = PredictionSets([one], k_max=5)
    assert str(one) == "'q' -> {'a'} (1 draw, stopped)"
    assert repr(ComponentSets([ComponentSet(("a",), [0.5], [[(0, None)]], one, True)])) == (
        "<ComponentSets of 1 prompt, 1 component>"
    )
    assert repr(sets) == "<PredictionSets of 1 prompt, k_max=5>"
    assert str(sets).startswith("PredictionSets of 1 prompt, k_max=5\n")
    assert "1 draw, stopped" in one._repr_html_()


def test_an_empty_set_is_no_blank_cell():
    empty = PredictionSet("q", (), [], [], 5, -np.inf, stopped=False, guaranteed=True)
    page = Reader(PredictionSets([empty], k_max=5)._repr_html_()).text
    assert "none accepted" in page
    assert "-inf" not in "".join(page)


def test_what_was_calibrated_prints_within_a_screen():
    prompts = [f"prompt {i}" for i in range(300)]
    references = ["yes" if i % 3 else "no" for i in range(300)]
    known = {"random_state": 0, "epsilon": 0.5, "quality": lambda prompt, draw: 0.5}
    groups = np.array(["a", "b"])[np.arange(300) % 2]
    for policy in (None, ExitPolicy()):
        one = ConformalSampler(policy=policy, **known).fit(prompts, references, groups=groups)
        shown = [one.calibration_, one.calibration_.rule, one.groups_, one.result_, one.frontier_]
        assert max(len(repr(each)) for each in [*shown, one.memory_]) < 80 * 24


def test_a_null_names_no_epsilon_that_cannot_be():
    one = ConformalSampler(random_state=0, quality=lambda prompt, draw: 0.5)
    with pytest.warns(NullCalibrationWarning, match="No epsilon"):
        one.fit([f"prompt {i}" for i in range(60)], [f"answer {i}" for i in range(60)])
