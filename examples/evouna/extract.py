"""Make trivia_qa.jsonl: ``python extract.py NQ.json TQ.json trivia_qa.jsonl``.

The two files are those of EVOUNA, https://github.com/wangcunxiang/QA-Eval (folder EVOUNA, commit
90007d3, Apache-2.0; Wang et al., Evaluating Open-QA Evaluation, NeurIPS 2023): answers of five
systems to questions of Natural Questions and TriviaQA, and what people say of each. The model
that judges is a classifier of texts: it learns from the verdicts on the first file alone, and
judges the answers of FiD in the second. Two other systems, of which one is dear, have their
answers and the verdicts on them beside these. Changed: improper questions are left out, at most
five references are kept, and columns are renamed and added.
"""

import json
import re
import string
import sys

import numpy as np
from rapidfuzz import fuzz
from sklearn.ensemble import HistGradientBoostingClassifier

SYSTEMS = ("fid", "gpt35", "chatgpt", "gpt4", "newbing")


def plain(text: str) -> str:
    text = "".join(" " if sign in string.punctuation else sign for sign in text.lower())
    return " ".join(re.sub(r"\b(a|an|the)\b", " ", text).split())


def features(line: dict) -> list[list[float]]:
    """What tells whether the answer of each system is right, without people."""
    answers = [plain(line[f"answer_{system}"]) for system in SYSTEMS]
    right = [one for one in map(plain, line["golden_answer"].split("/")) if one]
    holds = [float(any(one in answer for one in right)) for answer in answers]
    rows = []
    for i, answer in enumerate(answers):
        words, numbers = set(answer.split()), set(re.findall(r"\d+", answer))
        dates = [set(re.findall(r"\d+", one)) for one in right]
        rows.append(
            [
                holds[i],
                max(np.mean([word in words for word in one.split()]) for one in right),
                max(fuzz.partial_ratio(one, answer) for one in right),
                max(fuzz.token_set_ratio(one, answer) for one in right),
                max(len(of & numbers) / len(of) if of else 0.5 for of in dates),
                np.mean([fuzz.token_set_ratio(answer, b) for b in answers if b is not answer]),
                float(answers[0] in answer),
                len(answer.split()),
                min(len(one.split()) for one in right),
                len(right),
                sum(holds) - holds[i],
            ]
        )
    return rows


def read(path: str) -> list[dict]:
    """Proper questions that every system answers and people have judged."""
    with open(path, encoding="utf-8") as file:
        lines = json.load(file)
    judged = [one for one in lines if one["golden_answer"] and not one["improper"]]
    return [
        one
        for one in judged
        if all(one[f"answer_{s}"] and isinstance(one[f"judge_{s}"], bool) for s in SYSTEMS)
    ]


def main() -> None:
    learnt, judged = map(read, sys.argv[1:3])
    people = [one[f"judge_{system}"] for one in learnt for system in SYSTEMS]
    model = HistGradientBoostingClassifier(max_iter=150, learning_rate=0.06, random_state=0)
    model.fit([row for one in learnt for row in features(one)], people)
    rows = [features(one)[0] for one in judged]
    chances = model.predict_proba(rows)[:, 1]
    with open(sys.argv[3], "w", encoding="utf-8") as file:
        for one, row, chance in zip(judged, rows, chances.tolist()):
            line = {
                "question": one["question"],
                "references": one["golden_answer"].split("/")[:5],
                "answer": one["answer_fid"],
                "people": one["judge_fid"],
                "model": chance >= 0.5,
                "holds_reference": bool(row[0]),
                "gpt35": [one["answer_gpt35"], one["judge_gpt35"]],
                "gpt4": [one["answer_gpt4"], one["judge_gpt4"]],
            }
            file.write(json.dumps(line, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
