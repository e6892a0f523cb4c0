"""A page as its reader meets it: text, links and forms."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from html.parser import HTMLParser

from httpx import Client, Response

VOID = {"meta", "link", "input", "br", "img", "rect", "line", "path", "hr"}


@dataclass
class Form:
    """A form with the values of its fields as they are sent."""

    action: str
    method: str
    label: str = ""
    fields: dict[str, str] = field(default_factory=dict)


class Page(HTMLParser):
    """The parsed text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__(convert_charrefs=True)
        self.html = html
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.links: list[str] = []
        self.forms: list[Form] = []
        self._said: list[str] = []
        self._open: list[str] = []
        self._area: str | None = None
        self.feed(html)
        self.close()

    @property
    def text(self) -> str:
        """The text that is shown, with single spaces."""
        return " ".join("".join(self._said).split())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.tags.append((tag, given))
        if tag not in VOID:
            self._open.append(tag)
        if tag in ("p", "td", "th", "li", "div", "h1", "h2", "dt", "dd", "button", "a"):
            self._said.append(" ")
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        if tag == "form":
            self.forms.append(Form(given.get("action", ""), given.get("method", "get")))
        if not self.forms or "form" not in self._open:
            return
        form = self.forms[-1]
        is_box = given.get("type") in ("checkbox", "radio")
        if tag == "input" and "name" in given and (not is_box or "checked" in given):
            form.fields[given["name"]] = given.get("value", "on" if is_box else "")
        if tag == "textarea":
            self._area = given.get("name")
            form.fields[self._area or ""] = ""

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {name: value or "" for name, value in attrs}))

    def handle_endtag(self, tag: str) -> None:
        if tag == "textarea":
            self._area = None
        while self._open and self._open.pop() != tag:
            pass

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self.forms[-1].fields[self._area] += data
        elif not {"script", "style", "title"} & set(self._open):
            self._said.append(data)
            if "button" in self._open and self.forms and "form" in self._open:
                self.forms[-1].label += data

    def form(self, label: str) -> Form:
        """Return the form with this text on its button."""
        return next(form for form in self.forms if label in form.label)

    def labels(self) -> list[str]:
        return [form.label.strip() for form in self.forms]


def page_of(response: Response) -> Page:
    """Parse a response; fail unless it is a page that a strict Content-Security-Policy allows."""
    assert response.headers["content-type"].startswith("text/html"), response.text[:200]
    html = response.text
    assert not re.search(r"<script(?![^>]*\bsrc=)", html), "a script inside the page"
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=\"", html), "a style or a handler inside the page"
    return Page(html)


def get(client: Client, path: str, status: int = 200) -> Page:
    response = client.get(path)
    assert response.status_code == status, (path, response.status_code, response.text[:300])
    return page_of(response)


def submit(client: Client, page: Page, label: str, **changed: str) -> Response:
    """Send the form with this button, as a browser without scripts does."""
    form = page.form(label)
    fields = {**form.fields, **changed}
    if form.method == "get":
        return client.get(form.action, params=fields)
    return client.post(form.action, data=fields)
