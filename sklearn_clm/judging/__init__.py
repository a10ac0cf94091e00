"""A page in the browser on which people judge responses."""

from sklearn_clm.judging._server import judging_app, serve
from sklearn_clm.judging._session import JudgingSession, Turn, Wanted, wanted_from_file

__all__ = ["JudgingSession", "Turn", "Wanted", "judging_app", "serve", "wanted_from_file"]
