"""What several examples share: the paper's protocol, and data in files.

| module | what it holds |
|---|---|
| `paper_protocol` | random splits of collected draws, tables and figures |
| `jsonl_questions` | prompts and references from files of JSON lines |
| `report_tasks` | images with reports about them, and who judges |
| `sentence_classifier` | a component score that is trained |
| `sum_server` | an OpenAI-compatible server that adds numbers, often wrongly |
"""
