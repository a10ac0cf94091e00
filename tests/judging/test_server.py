"""What is let in, what is sent out, and how pairs are shown."""

import base64
import io
import json
import socket

import numpy as np
import pytest
from PIL import Image
from starlette.testclient import TestClient

from sklearn_clm.caching import Context, JudgedPrompt, WantedVerdict
from sklearn_clm.judging import JudgingSession, judging_app, serve

TOKEN, PORT = "token-of-this-test", 4321
ORIGIN = f"http://127.0.0.1:{PORT}"
PAIRS = [WantedVerdict(JudgedPrompt("prompt", ("a b", "c")), f"a d {i}") for i in range(3)]
STEERING = "\u202e\u2066\u200f\u061c\u2028\x1b\x00"


def client(judge, pairs=PAIRS, **options):
    app = judging_app(JudgingSession(judge, pairs, **options), token=TOKEN, port=PORT)
    return TestClient(app, base_url=ORIGIN)


def post(page, pair, key="y", *, path=f"/{TOKEN}/verdict", content=None, **headers):
    headers = {"origin": ORIGIN, "content-type": "application/json", **headers}
    content = json.dumps({"id": pair.id, "key": key}) if content is None else content
    return page.post(path, content=content, headers=headers)


def view(judge, pair, **options):
    return client(judge, [pair], **options).get(f"/{TOKEN}/turn").json()["pair"]


def test_the_page_and_its_files(judge):
    page = client(judge)
    for name, kind in [("", "html"), ("page.js", "javascript"), ("page.css", "css")]:
        answer = page.get(f"/{TOKEN}/{name}")
        assert answer.status_code == 200
        assert kind in answer.headers["content-type"]
        # nothing is loaded from elsewhere, and no script or style is in the page itself
        assert "http:" not in answer.text
        assert "https:" not in answer.text
    text = page.get(f"/{TOKEN}/").text
    assert "style=" not in text
    assert "<style" not in text
    assert "onclick" not in text
    assert "<script>" not in text
    assert page.get(f"/{TOKEN}/page.svg").headers["content-type"] == "image/svg+xml"


def test_a_verdict_is_kept_and_the_next_pair_comes_with_the_answer(judge):
    page = client(judge)
    assert page.get(f"/{TOKEN}/turn").json()["pair"]["id"] == PAIRS[0].id
    answer = post(page, PAIRS[0], path=f"/{TOKEN}/verdict").json()
    assert judge.verdicts(PAIRS[:1]) == [True]
    assert answer["pair"]["id"] == PAIRS[1].id
    assert (answer["n_judged"], answer["estimate"], answer["judged_by"]) == (1, "2 left.", "Ada")
    name = f"localhost:{PORT}"  # is the same machine
    undone = post(page, PAIRS[0], "u", host=name, origin=f"http://{name}")
    assert undone.json()["pair"]["id"] == PAIRS[0].id
    content = json.dumps({"id": PAIRS[0].id, "key": "y", "note": "語" * 300}, ensure_ascii=False)
    post(page, PAIRS[0], content=content.encode())
    assert judge.history()[-1].note == "語" * 300


@pytest.mark.parametrize("token", ["", "wrong", TOKEN[:-1], TOKEN + "x", TOKEN.upper(), "é"])
@pytest.mark.parametrize("path", ["", "page.js", "turn", "verdict"])
def test_nothing_is_found_without_the_token(judge, token, path):
    page = client(judge)
    assert page.get(f"/{token}/{path}").status_code == 404
    assert post(page, PAIRS[0], path=f"/{token}/{path}").status_code == 404
    assert page.get("/", follow_redirects=False).status_code == 404
    assert judge.history() == []


NAMES = ["evil.example", f"evil.example:{PORT}", "127.0.0.1", "127.0.0.1:1", "", f"127.1:{PORT}"]
ORIGINS = ["http://evil.example", "null", "http://127.0.0.1:1", f"https://127.0.0.1:{PORT}", ""]


@pytest.mark.parametrize(
    "headers",
    [
        *({"host": name, "origin": f"http://{name}"} for name in NAMES),
        *({"origin": origin} for origin in (*ORIGINS, f"http://localhost:{PORT}")),
    ],
)
def test_other_names_of_the_machine_and_other_origins_are_refused(judge, headers):
    page = client(judge)
    assert post(page, PAIRS[0], **headers).status_code == 403
    answer = page.get(f"/{TOKEN}/turn", headers=headers)
    assert answer.status_code == 403
    assert not any(name.startswith("access-control") for name in answer.headers)
    assert judge.history() == []


def test_a_verdict_needs_an_origin_and_json(judge):
    page, content = client(judge), json.dumps({"id": PAIRS[0].id, "key": "y"})
    path = f"/{TOKEN}/verdict"
    kind = {"content-type": "application/json"}
    assert page.post(path, content=content, headers=kind).status_code == 403
    for other in ("text/plain", "application/x-www-form-urlencoded", ""):
        assert post(page, PAIRS[0], **{"content-type": other}).status_code == 403
    assert judge.history() == []


@pytest.mark.parametrize("method", ["PUT", "DELETE", "OPTIONS"])
def test_other_methods_are_refused(judge, method):
    page = client(judge)
    for path in ("", "turn", "verdict"):
        answer = page.request(method, f"/{TOKEN}/{path}", headers={"origin": ORIGIN})
        assert answer.status_code == 405
        assert "access-control-allow-origin" not in answer.headers
    for path in ("", "turn", "page.js"):
        assert post(page, PAIRS[0], path=f"/{TOKEN}/{path}").status_code == 405
    assert page.get(f"/{TOKEN}/verdict").status_code == 405


def test_paths_lead_nowhere_else(judge):
    page = client(judge)
    paths = ["_server.py", "../_server.py", "..%2f_server.py", "page.html", "image/00/0",
             "image/no/0", f"image/{PAIRS[0].id}/0", f"image/{PAIRS[0].id}/-1",
             f"image/{PAIRS[0].id}/{'9' * 5000}", f"image/{PAIRS[0].id}/one"]  # fmt: skip
    for path in paths:
        assert page.get(f"/{TOKEN}/{path}").status_code == 404


@pytest.mark.parametrize(
    "content",
    [
        "[" * 100_000,
        "{}",
        "\x00",
        b"\xff",
        *(
            json.dumps({"id": PAIRS[0].id, "key": "y"} | other)
            for other in (
                *({"key": "yes"}, {"key": ["y"]}, {"note": "\ud800"}),
                *({"id": "' OR 1=1"}, {"id": 3}, {"id": "00" * 32}),
            )
        ),
    ],
)
def test_what_is_no_verdict_is_refused(judge, content):
    answer = post(client(judge), PAIRS[0], content=content)
    assert answer.status_code == 400
    assert judge.history() == []
    assert "default-src 'none'" in answer.headers["content-security-policy"]


def test_the_browser_is_told_to_trust_nothing_else(judge):
    page = client(judge)
    for path in ("", "page.js", "turn", "missing"):
        headers = page.get(f"/{TOKEN}/{path}").headers
        policy = dict(
            part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";")
        )
        assert policy["default-src"] == policy["frame-ancestors"] == policy["base-uri"] == "'none'"
        for kind in ("script-src", "style-src", "img-src", "connect-src"):
            assert policy[kind] == "'self'"
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["cache-control"] == "no-store"
        assert "set-cookie" not in headers


def test_what_models_say_is_text_without_steering_characters(judge):
    hostile = (
        "<script>alert(1)</script>",
        '"><img src=x onerror=alert(1)>',
        "javascript:alert(1)",
        "data:text/html,<script>alert(1)</script>",
        f"abc{STEERING}def",
    )
    chat = [{"role": f"<b>{STEERING}", "content": text} for text in hostile]
    pair = WantedVerdict(JudgedPrompt(chat, hostile), "".join(hostile))
    page = client(judge, [pair])
    judge.question, judge.judge = f"<i>{STEERING}", f"<u>{STEERING}"
    answer = client(judge, [pair]).get(f"/{TOKEN}/turn")
    assert answer.headers["content-type"] == "application/json"
    for text in (answer.text, page.get(f"/{TOKEN}/turn").text):
        assert not set(STEERING) & set(text)
        assert "\\u202e" not in text.lower()
    found = answer.json()
    shown = "".join(text for text, _ in found["pair"]["response"])
    assert shown.startswith("<script>alert(1)</script>")
    assert "⟨U+202E⟩⟨U+2066⟩⟨U+200F⟩⟨U+061C⟩⟨U+2028⟩⟨U+001B⟩⟨U+0000⟩" in shown
    assert found["question"].startswith("<i>⟨U+202E⟩")
    assert found["judged_by"].startswith("<u>⟨U+202E⟩")


def test_a_component_comes_with_the_response_around_it(judge):
    whole = f"It is <b>warm</b>{STEERING}. It rains. Really."
    start = whole.index("It rains")
    context = Context(whole, start, start + 9)
    shown = view(judge, WantedVerdict(JudgedPrompt("?", ("It rains.",), context), "It rains."))
    assert shown["response"] == [["It rains.", False]]
    assert shown["compared"] is None
    assert [marked for _, marked in shown["context"]] == [False, True, False]
    assert shown["context"][1] == ["It rains.", True]
    assert shown["context"][2] == [" Really.", False]
    assert not set(STEERING) & {sign for part, _ in shown["context"] for sign in part}
    assert shown["passages"] == []
    around = context._replace(passages=(f"<i>It</i>{STEERING}", "Two."))
    shown = view(judge, WantedVerdict(JudgedPrompt("?", (), around), "It rains."))
    assert [text[:2] for ((text, _),) in shown["passages"]] == ["<i", "Tw"]
    assert not set(STEERING) & set(str(shown["passages"]))
    assert view(judge, PAIRS[0])["context"] == view(judge, PAIRS[0])["passages"] == []


def test_addresses_of_images_are_text(judge):
    address = "https://evil.example/pixel.png"
    parts = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": address}},
        {"type": "image_url", "image_url": "data:image/png;base64,AAAA"},
        {"type": "audio"},
    ]
    blocks = view(judge, WantedVerdict(JudgedPrompt([{"role": "user", "content": parts}]), "a"))
    texts = [block["text"] for block in blocks["prompt"]]
    assert texts == ["Look:", address, "data:image/png;base64,AAAA", "[audio]"]
    assert all(block["image"] is None for block in blocks["prompt"])


def as_png(image):
    file = io.BytesIO()
    image.save(file, format="PNG")
    return file.getvalue()


def test_images_are_encoded_anew_and_bounded(judge):
    small = Image.fromarray(np.arange(12, dtype=np.uint8).reshape(3, 4))
    large = Image.new("L", (4_000, 30))
    address = "data:image/png;base64," + base64.b64encode(as_png(small) + b"<script>").decode()
    content = [
        {"type": "image", "image": small},
        {"type": "text", "text": "and"},
        {"type": "image", "image": large},
        {"type": "image_url", "image_url": {"url": address}},
    ]
    pairs = [
        WantedVerdict(JudgedPrompt([{"role": "user", "content": content}]), "a"),
        WantedVerdict(JudgedPrompt(small), "b"),
    ]
    blocks = view(judge, pairs[0])["prompt"]
    assert [block["image"] for block in blocks] == [0, None, 1, 2]
    page = client(judge, pairs)
    sizes = []
    for pair, number in [(0, 0), (0, 1), (0, 2), (1, 0)]:
        answer = page.get(f"/{TOKEN}/image/{pairs[pair].id}/{number}")
        assert answer.headers["content-type"] == "image/png"
        assert b"<script>" not in answer.content
        sizes.append(Image.open(io.BytesIO(answer.content)).size)
    assert sizes == [(4, 3), (1_600, 12), (4, 3), (4, 3)]
    assert page.get(f"/{TOKEN}/image/{pairs[1].id}/1").status_code == 404


def test_images_that_explode_are_not_opened(judge):
    bomb = as_png(Image.new("1", (8_000, 8_000)))
    address = "data:image/png;base64," + base64.b64encode(bomb).decode()
    content = [{"type": "image_url", "image_url": {"url": address}}]
    shown = view(judge, WantedVerdict(JudgedPrompt([{"role": "u", "content": content}]), "a"))
    assert shown["prompt"][0]["image"] is None


def test_differences_to_the_most_similar_reference(judge):
    asked = JudgedPrompt("?", ("in the year 1492", "It was 1492.", ""))
    shown = view(judge, WantedVerdict(asked, "It was  1493."))
    assert shown["compared"] == 1
    assert shown["response"] == [["It was  ", False], ["1493", True], [".", False]]
    assert shown["references"][0] == [["in the year 1492", False]]
    assert shown["references"][1] == [["It was ", False], ["1492", True], [".", False]]
    shown = view(judge, WantedVerdict(JudgedPrompt("?", ("北京市",)), "北海市"))
    assert shown["response"] == [["北", False], ["海", True], ["市", False]]
    assert view(judge, WantedVerdict(JudgedPrompt("?"), "a b"))["compared"] is None
    long = "Mix flour and water, knead, and let it rest. " * 20
    assert view(judge, WantedVerdict(JudgedPrompt("?", ("Knead it.",)), long))["compared"] is None
    # both texts hold the word that is marked, in another place
    shown = view(judge, WantedVerdict(JudgedPrompt("?", ("north by west",)), "west by north"))
    assert True in [marked for _, marked in shown["response"]]
    assert "order" in client(judge).get(f"/{TOKEN}/").text


def test_very_long_texts_are_shown_whole_and_not_compared(judge):
    text = "a b " * 10_000
    shown = view(judge, WantedVerdict(JudgedPrompt(text, (text,)), text))
    assert shown["compared"] is None
    assert shown["response"] == [[text, False]]
    assert shown["prompt"][0]["text"] == text


def test_other_prompts_and_responses_are_shown_as_text(judge):
    shown = view(judge, WantedVerdict(JudgedPrompt(np.arange(9.0), (4,)), 5))
    assert shown["prompt"][0]["text"].startswith("[0, 1, 2, 3,")
    assert (shown["response"], shown["references"]) == ([["5", False]], [[["4", False]]])
    assert view(judge, WantedVerdict(JudgedPrompt(None, ("b",)), ""))["prompt"] == []


def test_a_port_that_is_taken_is_refused_in_words(judge):
    with (
        socket.create_server(("127.0.0.1", 0)) as other,
        pytest.raises(ValueError, match="port=0 takes a free one"),
    ):
        serve(judge, PAIRS, port=other.getsockname()[1])
    with pytest.raises(ValueError, match="port"):
        serve(judge, PAIRS, port=65_536)
