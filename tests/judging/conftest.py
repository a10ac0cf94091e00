"""What tests of judging share."""

import pytest

from sklearn_clm.caching import HumanJudge


@pytest.fixture
def judge(tmp_path):
    return HumanJudge(tmp_path / "verdicts.sqlite", judge="Ada")
