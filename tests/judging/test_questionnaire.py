"""The judging page as a file, and the verdicts that come back."""

import json
import re

import pytest

from sklearn_clm.caching import HumanJudge, JudgedPrompt, WantedVerdict
from sklearn_clm.judging import export_questionnaire

from .serving import PAIRS

HOSTILE = "</script><script>alert(1)</script><!-- \u202e \u2028 ' \" &amp;"


def content_of(path):
    page = path.read_text("utf-8")
    (written,) = re.findall(r'<script type="application/json" id="file">(.*?)</script>', page)
    return json.loads(written)


def answers(path, content, name, rows, **changes):
    """The file that the page saves for a person."""
    saved = {"format": content["format"], "question": content["question"], "judge": name}
    verdicts = [{"id": id_, "verdict": verdict, "note": ""} for id_, verdict in rows]
    path.write_text(json.dumps({**saved, "verdicts": verdicts, **changes}), "utf-8")
    return path


def test_the_file_holds_all_it_needs_and_what_a_model_wrote_as_text_alone(judge, tmp_path):
    pair = WantedVerdict(JudgedPrompt(HOSTILE, (HOSTILE,)), HOSTILE)
    path = tmp_path / "questions.html"
    export_questionnaire(judge, path, [pair, *PAIRS[:3]])
    page = path.read_text("utf-8")
    # two scripts of ours and the content; nothing is loaded
    assert page.count("<script") == 3
    assert not re.findall(r"\b(?:src|href)=", page)
    assert "alert(1)</script>" not in page
    content = content_of(path)
    assert {one["id"] for one in content["pairs"]} == {pair.id, *(one.id for one in PAIRS[:3])}
    (shown,) = (one for one in content["pairs"] if one["id"] == pair.id)
    assert "⟨U+202E⟩" in shown["response"][0][0]


def test_images_of_a_prompt_are_in_the_file(judge, tmp_path):
    pillow = pytest.importorskip("PIL.Image")
    image = pillow.new("RGB", (8, 8), "red")
    message = {"role": "user", "content": [{"type": "image", "image": image}, "What is it?"]}
    pair = WantedVerdict(JudgedPrompt([message]), "red")
    export_questionnaire(judge, tmp_path / "questions.html", [pair])
    (address,) = content_of(tmp_path / "questions.html")["images"][pair.id]
    assert address.startswith("data:image/png;base64,")


def test_what_two_people_say_comes_back_under_their_names(judge, tmp_path):
    judge.want(PAIRS[:3])
    path = tmp_path / "questions.html"
    export_questionnaire(judge, path)
    content = content_of(path)
    ids = [pair.id for pair in PAIRS[:3]]
    ada = answers(tmp_path / "ada.json", content, "Ada", zip(ids, "yny"))
    grace = answers(tmp_path / "grace.json", content, "Grace", zip(ids[:2], "nn"))
    assert (judge.import_(ada), judge.import_(grace), judge.import_(ada)) == (3, 2, 0)
    assert [row.judge for row in judge.history()] == ["Ada"] * 3 + ["Grace"] * 2
    assert judge.verdicts(PAIRS[:3]) == [False, False, True]


def test_files_that_do_not_fit_are_refused(judge, tmp_path):
    with pytest.raises(ValueError, match="wanted must hold a pair"):
        export_questionnaire(judge, tmp_path / "questions.html")
    export_questionnaire(judge, tmp_path / "questions.html", PAIRS[:1])
    content = content_of(tmp_path / "questions.html")
    rows = [(PAIRS[0].id, "y")]
    saved = answers(tmp_path / "saved.json", content, "Ada", rows)
    with pytest.raises(ValueError, match=r"saved\.json.*question must be 'Is it kind\?'"):
        HumanJudge(judge.path, question="Is it kind?").import_(saved)
    for changes in ({"format": "other"}, {"verdicts": None}, {"verdicts": ["y"]}):
        with pytest.raises(ValueError, match=r"saved\.json"):
            judge.import_(answers(saved, content, "Ada", rows, **changes))
    for text in ("", "[" * 100_000, "\x00", "{}"):
        saved.write_text(text, "utf-8")
        with pytest.raises(ValueError, match=r"saved\.json"):
            judge.import_(saved)
    strange = [("00" * 16, "y"), ("no digest", "y"), (PAIRS[0].id, "perhaps"), (PAIRS[0].id, None)]
    with pytest.warns(UserWarning, match="lines were not kept: 3"):
        assert judge.import_(answers(saved, content, "Ada", strange)) == 0
    assert judge.history() == []
