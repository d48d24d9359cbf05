"""Pages for people: templates with everything escaped, and headers that keep links and pages to those who have them."""

from __future__ import annotations

from functools import cache
from typing import Any

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from starlette.responses import HTMLResponse

HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": (
        "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
    ),
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "X-Robots-Tag": "noindex, nofollow",
}


@cache
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("bide.server"), autoescape=True, undefined=StrictUndefined, trim_blocks=True
    )
    environment.filters["as_json"] = lambda value: msgspec.json.encode(value).decode()
    environment.filters["as_text"] = lambda value: (
        value if isinstance(value, str) else msgspec.json.encode(value).decode()
    )
    return environment


def page(template: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_environment().get_template(template).render(**values), status, HEADERS)
