"""What several examples share: the paper's protocol, options and models.

| module | what it holds |
|---|---|
| `paper_protocol` | random splits of collected draws, tables and figures |
| `report_tasks` | images with reports about them, and who judges |
| `sentence_classifier` | a component score that is trained |
| `tasks` | options, a model whose draws are kept, prompts and references from files |
| `sum_server` | an OpenAI-compatible server that adds numbers, often wrongly |
"""
