"""HTML as a browser would see it."""

from html.parser import HTMLParser

VOID = ("br", "hr", "meta", "img", "input")


class Page(HTMLParser):
    """Elements, attributes and text of a page; which text is marked, and under which title."""

    def __init__(self, page):
        super().__init__()
        self.open, self.text, self.comments, self.marked = [], [], [], []
        self.tags, self.attributes, self.titles = set(), [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes += attrs
        if tag == "mark":
            self.titles.append(dict(attrs).get("title"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text.append(data)
        if "mark" in self.open:
            self.marked.append(data)

    def handle_comment(self, data):
        self.comments.append(data)
