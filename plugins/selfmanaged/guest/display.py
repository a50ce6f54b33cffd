# The part of runner.py that turns values into artifacts. Loaded when there is the
# first one. The name runner is that of runner.py.
import base64
import importlib.util
import io
import json
import sys

FORMS = {
    "_repr_html_": "text/html",
    "_repr_markdown_": "text/markdown",
    "_repr_latex_": "text/latex",
    "_repr_svg_": "image/svg+xml",
    "_repr_png_": "image/png",
    "_repr_jpeg_": "image/jpeg",
    "_repr_json_": "application/json",
    "_repr_javascript_": "application/javascript",
    "_repr_pdf_": "application/pdf",
}
CHART = "application/vnd.e2b.chart+json"
MOST_OF_A_CHART = 256 << 10  # bytes
BINARY = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


def encode(mime, data):
    """The bytes of a representation, in whatever form it is given."""
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data)
    if isinstance(data, str):
        if mime in BINARY:
            return base64.b64decode(data)
        return data.encode("utf-8", "replace")
    return json.dumps(data, ensure_ascii=False, default=str).encode("utf-8", "replace")


def plain(value):
    return type(value) in (dict, list)


class Drawing(io.BytesIO):
    """A file that takes a little more than limit bytes. The SVG of a million points
    would need all the memory, where their PNG needs none."""

    def __init__(self, limit):
        super().__init__()
        self.limit = limit

    def write(self, data):
        written = super().write(data)
        if self.tell() > self.limit:
            raise TooLarge
        return written


class TooLarge(Exception):
    pass


class Worker:
    def __init__(self, channel):
        self.channel = channel
        self.charts = None
        self.begin(None)

    def begin(self, limits):
        self.limits = limits
        self.group = 0
        self.sent = 0
        self.left = limits["max_total_bytes"] if limits else 0

    def display(self, value, raw):
        self.send("display", dict(value) if raw else self.bundle(value))

    def result(self, value):
        self.send("result", self.bundle(value))

    def bundle(self, value):
        """The representations of a value by MIME type."""
        figure = sys.modules.get("matplotlib.figure")
        if figure is not None and isinstance(value, figure.Figure):
            return self.pictures(value)
        cls = type(value)
        forms = {"text/plain": self.attempt(lambda: repr(value))}
        if forms["text/plain"] is None:
            forms["text/plain"] = object.__repr__(value)
        if plain(value):
            try:
                forms["application/json"] = json.dumps(value, ensure_ascii=False, allow_nan=False)
            except (TypeError, ValueError, RecursionError):
                pass  # it has no such form
        for name, mime in FORMS.items():
            # Of the class: some objects claim to have any attribute.
            method = getattr(cls, name, None)
            if method is not None:
                forms[mime] = self.attempt(lambda method=method: method(value))
        if getattr(cls, "_repr_mimebundle_", None) is not None:
            more = self.attempt(lambda: value._repr_mimebundle_(include=None, exclude=None))
            if isinstance(more, tuple):
                more = more[0]
            if isinstance(more, dict):
                forms.update(more)
        return forms

    def attempt(self, make):
        """What make returns. Its failure is shown, but nothing ends by it."""
        try:
            made = make()
        except Exception as e:
            runner.report(e)
            return None
        if isinstance(made, tuple):  # data and metadata
            made = made[0]
        return made

    def send(self, kind, forms):
        if self.limits is None:
            return
        self.group += 1
        for mime, data in forms.items():
            if data is None:
                continue
            # One above the limit shows that there are more.
            if self.sent > self.limits["max_count"]:
                return
            self.sent += 1
            try:
                data = encode(mime, data)
            except Exception as e:
                runner.report(e)
                continue
            size, refused = len(data), ""
            if size > self.limits["max_bytes"]:
                refused = f"larger than {self.limits['max_bytes']} bytes"
            elif size > self.left:
                refused = f"more than {self.limits['max_total_bytes']} bytes with the artifacts before it"
            if refused:
                data = b""
            self.left -= len(data)
            self.channel.send(kind, data, mime=str(mime), group=self.group, size=size, refused=refused)

    def pictures(self, figure, others=0):
        """A figure as PNG; as SVG too if as many others still have room for a PNG of
        that size, and as what is in it if they have it for both."""
        if self.limits is None:
            return {}
        forms = {"image/png": self.attempt(lambda: self.picture(figure))}
        if forms["image/png"] is None or self.sent + 2 + others > self.limits["max_count"]:
            return forms
        svg = self.attempt(lambda: self.vectors(figure))
        room = self.left - len(forms["image/png"]) * (1 + others)
        if svg is not None and not room < len(svg) <= self.limits["max_bytes"]:
            forms["image/svg+xml"] = svg
            room -= len(svg) if len(svg) <= self.limits["max_bytes"] else 0
        room = min(room, self.limits["max_bytes"], MOST_OF_A_CHART)
        if self.sent + 3 + 2 * others <= self.limits["max_count"] and room > 0:
            forms[CHART] = self.chart(figure, room)
        return forms

    def chart(self, figure, room):
        """What is in the figure, if that can be said. That it cannot is no failure."""
        try:
            if self.charts is None:
                self.charts = runner.part("charts")
            return self.charts.chart_of(figure, room)
        except Exception:
            return None

    def picture(self, figure):
        file = io.BytesIO()
        figure.savefig(file, format="png", bbox_inches="tight")
        return file.getvalue()

    def vectors(self, figure):
        """The SVG, or as much of it as shows that it is too large."""
        file = Drawing(self.limits["max_bytes"])
        try:
            figure.savefig(file, format="svg", bbox_inches="tight")
        except TooLarge:
            pass
        return file.getvalue()

    def figures(self):
        """Show the open figures and close them."""
        pyplot = sys.modules["matplotlib.pyplot"]
        try:
            numbers = pyplot.get_fignums()
            for i, number in enumerate(numbers):
                if self.limits is not None and self.sent <= self.limits["max_count"]:
                    self.send("display", self.pictures(pyplot.figure(number), len(numbers) - i - 1))
        finally:
            pyplot.close("all")

    def show(self, *args, **kwargs):
        """What pyplot.show does."""
        self.figures()

    def backend(self, name):
        """Matplotlib's backend, with this show."""
        spec = importlib.util.find_spec(name)
        if spec is None or spec.loader is None:
            return spec
        load = spec.loader.exec_module

        def exec_module(module):
            load(module)
            module.show = self.show

        spec.loader.exec_module = exec_module
        return spec
