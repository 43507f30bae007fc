"""The HTML report: one page that needs no network and no script.

`figures` reads what a verdict's canonical bytes hold, `plots` draws it, `section` shows one record, `page` puts
the whole together.
"""

from __future__ import annotations

from kvint2eval.report.html.page import HtmlPage

__all__ = ["HtmlPage"]
