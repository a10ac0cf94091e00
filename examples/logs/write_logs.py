"""Small logs of evaluations, as lm-evaluation-harness and Inspect write them.

A "model" that adds, and slips now and then, answers sums five times each. Run it to write the two
logs beside this script anew:

    python examples/logs/write_logs.py
"""

import hashlib
import json
import random
import zipfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
LM_EVAL, INSPECT = "samples_sums_2026-11-22T12-00-00.000000.jsonl", "sums.eval"
TIME = "2026-11-22T12:00:00+00:00"


def sums(n_prompts, n_draws, random_state=0):
    """Sums, their results, and what was drawn for each."""
    rng = random.Random(random_state)
    for pair in rng.sample(range(10_000), n_prompts):
        a, b = divmod(pair, 100)
        yield (
            f"{a} + {b}",
            str(a + b),
            [str(a + b + rng.choice([0, 0, 0, 1, 10])) for _ in range(n_draws)],
        )


def lm_eval_lines(n_prompts=100, n_draws=5, random_state=0):
    """Lines of ``lm_eval --log_samples`` for a task with ``repeats: 5``.

    Its default filter, "none", takes the first response, and the metric is about that one alone.
    """
    for i, (question, result, draws) in enumerate(sums(n_prompts, n_draws, random_state)):
        doc, prompt = {"question": question, "answer": result}, f"Q: {question}\nA:"
        settings = {"until": ["\n"], "do_sample": True, "temperature": 0.8}
        yield {
            "doc_id": i,
            "doc": doc,
            "target": result,
            "arguments": {"gen_args_0": {"arg_0": prompt, "arg_1": settings}},
            "resps": [draws],
            "filtered_resps": draws[:1],
            "filter": "none",
            "metrics": ["exact_match"],
            "doc_hash": _sha256(json.dumps(doc, indent=2, ensure_ascii=False)),
            "prompt_hash": _sha256(prompt),
            "target_hash": _sha256(result),
            "exact_match": float(draws[0] == result),
        }


def inspect_log(n_prompts=100, n_epochs=5, random_state=0):
    """Header and samples of an Inspect log, a sample for each prompt and epoch."""
    config = {"epochs": n_epochs, "epochs_reducer": ["mean"]}
    task = {"task": "sums", "task_id": "sums", "run_id": "sums", "eval_id": "sums", "created": TIME}
    dataset = {"name": "sums", "samples": n_prompts, "shuffled": False}
    header = {
        "version": 2,
        "status": "success",
        "eval": {**task, "dataset": dataset, "model": "mockllm/model", "config": config},
        "plan": {"name": "plan", "steps": [], "config": {"temperature": 0.8}},
        "results": {
            "total_samples": n_prompts * n_epochs,
            "completed_samples": n_prompts * n_epochs,
        },
        "stats": {"started_at": TIME, "completed_at": TIME, "model_usage": {}},
    }
    samples = [
        _inspect_sample(i + 1, epoch + 1, question, result, draw)
        for i, (question, result, draws) in enumerate(sums(n_prompts, n_epochs, random_state))
        for epoch, draw in enumerate(draws)
    ]
    return header, samples


def _inspect_sample(number, epoch, question, result, draw):
    asked = {"role": "user", "content": question, "source": "input"}
    said = {"role": "assistant", "content": draw, "source": "generate"}
    choice = {"message": said, "stop_reason": "stop"}
    return {
        "id": number,
        "epoch": epoch,
        "input": question,
        "target": result,
        "messages": [asked, said],
        "output": {"model": "mockllm/model", "choices": [choice], "completion": draw},
        "scores": {"match": {"value": "C" if draw == result else "I", "answer": draw}},
        "metadata": {},
        "store": {},
        "events": [],
        "model_usage": {},
        "attachments": {},
    }


def write_eval(path, header, samples, compression=zipfile.ZIP_DEFLATED):
    """The archive: a member for each sample, and the header at last."""
    start = {name: header[name] for name in ("version", "eval", "plan")}
    members = {"_journal/start.json": start}
    for sample in samples:
        members[f"samples/{sample['id']}_epoch_{sample['epoch']}.json"] = sample
    members["header.json"] = header
    with zipfile.ZipFile(path, "w", compression, compresslevel=9) as archive:
        for name, content in members.items():
            member = zipfile.ZipInfo(name, (2026, 11, 22, 12, 0, 0))
            member.compress_type = compression
            archive.writestr(member, json.dumps(content))


def _sha256(text):
    return hashlib.sha256(text.encode("utf-8")).hexdigest()


if __name__ == "__main__":
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lm_eval_lines())
    (HERE / LM_EVAL).write_text(text, encoding="utf-8")
    write_eval(HERE / INSPECT, *inspect_log())
