"""The page in a real browser, where there is one: Debian's chromium and chromium-driver."""

import os
import re
import shutil
import time

import numpy as np
import pytest

from sklearn_clm.caching import Context, JudgedPrompt, VerdictsWanted, WantedVerdict
from sklearn_clm.judging import export_questionnaire

from .serving import PAIRS, Server, ServerInThread

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium (extra test)")
pytest.importorskip("uvicorn", reason="needs the extra judge: uvicorn and starlette")


ANSWERS = [WantedVerdict(JudgedPrompt("2+2?", ("4",)), f"It is {i}.") for i in range(3)]
BROWSER = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("chrome")
DRIVER = shutil.which("chromedriver")
pytestmark = pytest.mark.skipif(
    not (BROWSER and DRIVER), reason="needs Chromium and its driver (apt: chromium-driver)"
)


@pytest.fixture(scope="module")
def browser():
    options = webdriver.ChromeOptions()
    options.binary_location = BROWSER
    arguments = ["headless=new", "no-sandbox", "disable-dev-shm-usage", "disable-gpu"]
    for argument in arguments:
        options.add_argument(f"--{argument}")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # under the locale C it finds no profile in a folder whose name has other letters
    service = webdriver.ChromeService(DRIVER, env={**os.environ, "LC_ALL": "C.UTF-8"})
    driver = webdriver.Chrome(options=options, service=service)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def server():
    server = ServerInThread()
    yield server
    server.stop()


def wait_for(condition):
    deadline = time.monotonic() + 60
    while not (found := condition()):
        assert time.monotonic() < deadline, "the page did not change"
        time.sleep(0.01)
    return found


def shown(browser):
    """Id of the pair on the page, once it is no longer at work."""
    script = (
        "return document.body.ariaBusy === 'false' ? (document.body.dataset.pair || 'none') : ''"
    )
    return wait_for(lambda: browser.execute_script(script))


@pytest.fixture
def prefer(browser):
    """Sets which colours the reader prefers."""

    def prefer(*schemes):
        features = [{"name": "prefers-color-scheme", "value": scheme} for scheme in schemes]
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    yield prefer
    prefer()


def text(browser, id_):
    return browser.find_element("id", id_).text


def press(browser, key):
    browser.find_element("tag name", "body").send_keys(key)
    return shown(browser)


@pytest.mark.slow
def test_forty_pairs_by_keys_with_undo_reload_and_a_kill(browser, judge, tmp_path, request):
    def started(pairs):
        judge.want(pairs)
        server = Server(judge.path)
        request.addfinalizer(server.kill)
        return server

    by_id = {pair.id: i for i, pair in enumerate(PAIRS)}

    def right(id_):
        return "y" if by_id[id_] % 2 == 0 else "n"

    server = started(PAIRS)
    browser.get(server.url)
    now = shown(browser)
    assert text(browser, "estimate") == "40 left."
    for _ in range(10):
        before, now = now, press(browser, right(now))
        assert judge.pair(before) in PAIRS
        assert judge.verdicts([PAIRS[by_id[before]]]) == [by_id[before] % 2 == 0]
    # a slip, taken back
    slip = now
    press(browser, "n" if right(slip) == "y" else "y")
    assert press(browser, "u") == slip
    assert judge.verdicts([PAIRS[by_id[slip]]]) == [None]
    browser.refresh()
    assert shown(browser) == slip
    assert "10 judged" in text(browser, "who")
    skipped = slip
    assert press(browser, "s") != skipped
    now = shown(browser)
    for _ in range(10):
        now = press(browser, right(now))
    # keys that belong to the browser, or are held down, judge nothing
    script = (
        "for (const options of [{ctrlKey: true}, {repeat: true}, {altKey: true}])"
        "document.dispatchEvent(new KeyboardEvent('keydown', {key: 'y', ...options}))"
    )
    browser.execute_script(script)
    assert shown(browser) == now
    n_before = len(judge.history())
    server.kill()
    press(browser, right(now))
    assert "cannot be reached" in text(browser, "notice")
    assert shown(browser) == now
    assert len(judge.history()) == n_before
    server = started(PAIRS)
    browser.get(server.url)
    assert "0 judged" in wait_for(lambda: text(browser, "who"))
    now = shown(browser)
    while now != "none":
        now = press(browser, right(now).upper())
    assert text(browser, "conclusion").startswith("Nothing is left to judge: 20 of 20 judged.")
    assert judge.verdicts(PAIRS) == [i % 2 == 0 for i in range(40)]
    assert len(judge.history()) == 42  # the slip, and that it was taken back
    assert [
        entry for entry in browser.get_log("browser") if "ERR_CONN" not in entry["message"]
    ] == []


@pytest.mark.parametrize("is_component", [False, True])
def test_hostile_texts_do_nothing_but_stand_there(browser, server, judge, is_component):
    payloads = [
        "<script>window.hacked = 1</script>",
        '"><img src=x onerror="window.hacked = 1">',
        "<svg onload=window.hacked=1>",
        "javascript:window.hacked=1",
        "</div></main><h1>owned</h1>",
        "<iframe srcdoc='<script>parent.hacked=1</script>'></iframe>",
        "abc \u202e desrever \u2066",
        "${window.hacked = 1}{{window.hacked = 1}}",
    ]
    chat = [{"role": payload, "content": payload} for payload in payloads]
    response = " ".join(payloads)
    context = None
    if is_component:
        context = Context(response * 2, 0, len(response), (response, "Two."))
    pair = WantedVerdict(JudgedPrompt(chat, tuple(payloads), context), response)
    browser.get(server.show(judge, [pair]))
    assert shown(browser) == pair.id
    assert browser.execute_script("return window.hacked") is None
    for tag in ("svg", "iframe", "img", "h1 ~ h1", "main h1"):
        assert browser.find_elements("css selector", tag) == []
    for place in ("response", "context", "passages") if is_component else ("response",):
        response = text(browser, place)
        for payload in payloads[:6]:
            assert payload in response
        assert "abc ⟨U+202E⟩ desrever ⟨U+2066⟩" in response
    loaded = browser.execute_script(
        "return performance.getEntriesByType('resource').map(entry => new URL(entry.name).host)"
    )
    assert set(loaded) == {browser.current_url.split("/")[2]}
    script = "const s = document.createElement('script'); s.textContent = 'window.hacked = 1';"
    # even what came in by other ways may not run
    with pytest.raises(Exception, match=r"TrustedScript|Trusted Type"):
        browser.execute_script(script + "document.body.append(s)")
    assert browser.execute_script("return window.hacked") is None
    browser.get_log("browser")


@pytest.mark.parametrize("is_component", [False, True])
def test_it_fits_narrow_screens_and_dark_rooms(browser, server, judge, prefer, is_component):
    words = "Donaudampfschifffahrtsgesellschaft" * 6
    passages = ("word " * 2_000 + words,)
    context = None
    if is_component:
        context = Context("word " * 2_000 + words + " b", 10_000, 10_206, passages)
    asked = JudgedPrompt("word " * 2_000 + words, (words, "a"), context)
    pair = WantedVerdict(asked, words + " b")
    url = server.show(judge, [pair])
    try:
        for width, dark in [(320, False), (375, True), (1200, False), (1200, True)]:
            prefer("dark" if dark else "light")
            size = {"width": width, "height": 700, "deviceScaleFactor": 1, "mobile": width < 500}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            browser.get(url)
            assert shown(browser) == pair.id
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            color = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, color[4:-1].split(","))) < 200) == dark
            for key in "ynsu":  # in reach of a thumb, and large enough for it
                box = browser.find_element("id", key).rect
                assert min(box["height"], box["width"]) >= 44
                inside = f"document.getElementById('{key}').getBoundingClientRect().bottom <= 700"
                assert browser.execute_script(f"return {inside}")
            if is_component:  # what is judged is in sight, without a mouse
                script = (
                    "const [a, b] = [document.querySelector('#context mark'), "
                    "document.getElementById('context')].map(x => x.getBoundingClientRect());"
                    "return a.top >= b.top && a.top < b.bottom"
                )
                assert browser.execute_script(script)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_component_is_shown_in_its_response(browser, server, judge):
    context = Context("It is warm. It rains.", 12, 21, ("A cloud.", "A wet street."))
    asked = JudgedPrompt("Weather?", ("Warm.",), context)
    whole = WantedVerdict(JudgedPrompt("Weather?", ("Warm.",)), "It is.")
    browser.get(server.show(judge, [WantedVerdict(asked, "It rains."), whole]))
    shown(browser)
    assert text(browser, "context") == "It is warm. It rains."
    marked = browser.find_elements("css selector", "#context mark")
    assert [mark.text for mark in marked] == ["It rains."]
    assert text(browser, "response-title").lower() == "judge this part"
    assert text(browser, "passages").split("\n") == ["1", "A cloud.", "2", "A wet street."]
    assert press(browser, "y") == whole.id
    assert not browser.find_element("id", "context-part").is_displayed()
    assert not browser.find_element("id", "passages-part").is_displayed()
    assert text(browser, "response-title").lower() == "response"


def test_a_note_is_kept_with_the_verdict(browser, server, judge):
    browser.get(server.show(judge, ANSWERS))
    shown(browser)
    press(browser, "c")
    note = browser.switch_to.active_element
    assert note.get_attribute("id") == "note"
    note.send_keys("nynsu, <b>unsure</b>")  # letters of keys, which judge nothing here
    assert judge.history() == []
    note.send_keys("\ue007")  # Enter leaves the note
    assert press(browser, "n") == ANSWERS[1].id
    assert [(row.verdict, row.note) for row in judge.history()] == [(False, "nynsu, <b>unsure</b>")]
    assert browser.find_element("id", "note").get_attribute("value") == ""
    press(browser, "y")
    assert judge.history()[1].note == ""


def test_buttons_judge_as_keys_do(browser, server, judge):
    browser.get(server.show(judge, ANSWERS[:2]))
    shown(browser)
    assert not browser.find_element("id", "u").is_enabled()
    browser.find_element("id", "n").click()
    assert shown(browser) == ANSWERS[1].id
    browser.find_element("id", "u").click()
    assert shown(browser) == ANSWERS[0].id
    browser.find_element("id", "y").click()
    assert shown(browser) == ANSWERS[1].id
    assert judge.verdicts(ANSWERS[:2]) == [True, None]


def test_a_long_response_is_judged_once_its_end_was_in_sight(browser, server, judge):
    answer = "## Steps\n\n" + "1. Take one.\n" * 80 + "\n```\na = 1\n```\n| a | b |"
    pair = WantedVerdict(JudgedPrompt("How?", ("Take one.",)), answer)
    browser.get(server.show(judge, [pair]))
    assert shown(browser) == pair.id
    kinds = browser.execute_script(
        "return [...document.querySelectorAll('#response .line')].map(line => line.className)"
    )
    assert kinds[0] == "line heading"
    assert kinds[2] == "line item"
    assert kinds[-4:] == ["line code"] * 4
    assert text(browser, "response").startswith("## Steps")  # as the model wrote it
    assert press(browser, "y") == pair.id
    assert judge.history() == []
    for _ in range(20):
        press(browser, "y")
    assert judge.verdicts([pair]) == [True]


def test_the_end_shows_what_was_found_and_the_key_that_still_works(browser, server, judge):
    report = (
        "# Report\n\n## Guarantee\n\nIt holds <b>a</b>\n| so |.\n\n## All\n\n### Tests\n\n"
        "| what | number |\n| --- | --- |\n| draws | 3 |"
    )
    calls = iter([VerdictsWanted(ANSWERS[:1], 5)])

    def calibration():
        for wanted in calls:
            raise wanted
        return report

    browser.get(server.show(judge, calibration))
    shown(browser)
    assert browser.title == text(browser, "estimate") + " · Judge"
    press(browser, "s")
    assert "Skipped" in text(browser, "notice")
    press(browser, "y")
    assert "It holds <b>a</b>\n| so |." in text(browser, "conclusion")
    assert not browser.find_element("css selector", "#conclusion table").is_displayed()
    assert [browser.find_element("id", key).is_displayed() for key in "ynsu"] == [False] * 3 + [
        True
    ]
    browser.find_element("css selector", "#conclusion summary").click()
    assert browser.find_element("css selector", "#conclusion table").is_displayed()
    cells = browser.find_elements("css selector", "#conclusion td")
    assert [cell.text for cell in cells] == ["what", "number", "draws", "3"]
    press(browser, "u")
    assert "Taken back" in text(browser, "notice")


def test_a_questionnaire_without_a_server_by_keys_on_a_phone(browser, judge, tmp_path):
    hostile = WantedVerdict(JudgedPrompt("2+2?", ("4",)), "</script><img src=x onerror=alert(1)>")
    export_questionnaire(judge, tmp_path / "questions.html", [*ANSWERS, hostile])
    address = (tmp_path / "questions.html").as_uri()
    folder = {"behavior": "allow", "downloadPath": str(tmp_path)}
    browser.execute_cdp_cmd("Browser.setDownloadBehavior", folder)
    phone = {"width": 390, "height": 844, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    browser.get_log("browser")
    try:
        browser.get(address)
        now = shown(browser)
        assert browser.execute_script("return document.body.scrollWidth") <= 390
        assert browser.execute_script("return document.images.length") == 0
        said = {}
        for key in "yn":
            said[now] = key
            now = press(browser, key)
        assert press(browser, "s") != now
        assert press(browser, "u") == now
        slip = now
        press(browser, "n")
        assert press(browser, "u") == slip
        browser.get(address)  # another visit goes on
        assert shown(browser) == slip
        browser.find_element("id", "save").click()
        assert "Give your name first" in text(browser, "notice")
        browser.find_element("id", "name").send_keys("Grace yns\ue007")  # no verdicts
        while (now := shown(browser)) != "none":
            said[now] = "y"
            press(browser, "y")
        assert text(browser, "conclusion").startswith("All 4 are judged.")
        browser.find_element("id", "save").click()
        saved = tmp_path / "verdicts-Grace-yns.json"
        wait_for(saved.exists)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert not [line for line in browser.get_log("browser") if line["level"] == "SEVERE"]
    assert judge.import_(saved) == 4
    assert {row.id: "yn"[not row.verdict] for row in judge.history()} == said
    assert {row.judge for row in judge.history()} == {"Grace yns"}


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_borders_can_be_seen(browser, server, judge, prefer, scheme):
    """With a contrast of 3 to 1 at least, as WCAG 2.1 asks of them (1.4.11)."""

    def luminance(color):
        shares = np.array(re.findall(r"[\d.]+", color)[:3], dtype=float) / 255
        linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
        return linear @ [0.2126, 0.7152, 0.0722] + 0.05

    prefer(scheme)
    browser.get(server.show(judge, ANSWERS))
    shown(browser)
    paper = browser.find_element("tag name", "body").value_of_css_property("background-color")
    for place in ("#note", "#s", "#y", "#response", ".reference", "progress"):
        element = browser.find_element("css selector", place)
        border = element.value_of_css_property("border-bottom-color")
        inside = element.value_of_css_property("background-color")
        for ground in (paper, inside):
            one, other = sorted((luminance(border), luminance(ground)))
            assert other / one >= 3, place
