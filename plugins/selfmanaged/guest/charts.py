# The part of display.py that says what is in a figure of matplotlib, in the form that
# E2B has made up for it. Loaded when there is the first figure. A figure of which it can
# say nothing has none.
import datetime
import json
import math
import re
import sys
import warnings

MOST = 10_000  # points, bars, ticks and so on of a figure


class TooMuch(Exception):
    pass


class Unknown(Exception):
    """A drawing of no kind that the form has."""


def chart_of(figure, limit):
    """What is in a figure, as JSON; None if that is nothing known, or more than limit
    bytes."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        chart = Reader().figure(figure)
    if chart is None:
        return None
    text = json.dumps(chart, ensure_ascii=False, allow_nan=False).encode("utf-8", "replace")
    return text if len(text) <= limit else None


def number(value):
    """A coordinate as a number; None if it is none that JSON has."""
    value = float(value)
    return value if math.isfinite(value) else None


def coordinate(value):
    """A number, or the text of a time or a category."""
    if type(value) in (int, float):
        return number(value)
    if kind_of(value) == "M":
        text = str(value.astype("datetime64[s]"))
        return None if text == "NaT" else text
    if isinstance(value, datetime.date):
        return value.isoformat()
    try:
        return number(value) if not isinstance(value, str) else value
    except TypeError:
        return str(value)  # pandas has periods, for example


def coordinates(values):
    if kind_of(values) not in ("f", "i", "u"):
        return [coordinate(value) for value in values]
    values = values.astype(float)
    if hasattr(values, "filled"):
        values = values.filled(math.nan)
    return [value if math.isfinite(value) else None for value in values.tolist()]


def kind_of(values):
    """The kind that numpy has for them, if they are its own."""
    return getattr(getattr(values, "dtype", None), "kind", "")


class Axis:
    """One direction of a drawing."""

    def __init__(self, axis, scale, reader):
        self.axis, self.dates = axis, False
        converter = axis.get_converter() if hasattr(axis, "get_converter") else axis.converter
        dates = sys.modules.get("matplotlib.dates")
        if converter is not None and dates is not None:
            name = type(converter).__name__
            # The places of pandas' periods are numbers of its own.
            self.dates = "Period" not in name and (isinstance(converter, dates.DateConverter) or "DateConverter" in name)
        places = axis.get_ticklocs()
        reader.count(len(places))
        self.places = [number(place) for place in places]
        self.labels = [label.get_text() for label in axis.get_ticklabels()]
        self.ticks = [self.place(place) for place in self.places]
        self.written = {round(place, 9): label for place, label in zip(self.places, self.labels) if place is not None}
        # Categories stand at 0, 1, 2, and their names beside them.
        named = [label != str(i) and place == i for i, (place, label) in enumerate(zip(self.places, self.labels))]
        if self.dates:
            self.scale = "datetime"
        else:
            self.scale = "categorical" if scale == "linear" and named and all(named) else scale

    def place(self, place):
        if self.dates and place is not None:
            return sys.modules["matplotlib.dates"].num2date(place).isoformat()
        return place

    def name(self, place):
        """What is written at a place, or would be."""
        written = self.written.get(round(place, 9))
        return written or (self.place(place) if self.dates else f"{place:g}")


class Box:
    """The box of a box plot."""

    def __init__(self, patch):
        vertices = patch.get_path().vertices
        if len(vertices) > 6:
            raise Unknown  # a notch may lie outside of the quartiles
        self.low = vertices.min(axis=0).tolist()
        self.high = vertices.max(axis=0).tolist()

    def holds(self, point):
        return all(low <= at <= high for low, at, high in zip(self.low, point, self.high))


class Reader:
    """Reads a figure, up to a number of things in it."""

    def __init__(self):
        self.left = MOST

    def count(self, more):
        self.left -= more
        if self.left < 0:
            raise TooMuch

    def figure(self, figure):
        drawings = [ax for ax in figure.axes if ax.has_data()]
        if not drawings:
            return None
        if len(figure.axes) == 1:
            chart = self.drawing(drawings[0])
            return None if chart["type"] == "unknown" else chart
        charts = [self.drawing(ax) for ax in drawings]
        if all(chart["type"] == "unknown" for chart in charts):
            return None
        title = getattr(figure, "_suptitle", None)
        return {"type": "superchart", "title": title.get_text() if title else None, "elements": charts}

    def drawing(self, ax):
        chart = {"type": "unknown", "title": ax.get_title() or None, "elements": []}
        try:
            kind, read = self.kind(ax)
            chart.update(read(ax), type=kind)
        except Unknown:
            pass
        return chart

    def kind(self, ax):
        """What a drawing is, and who reads it."""
        import matplotlib.collections
        import matplotlib.patches

        lines = [line for line in ax.lines if line.get_transform() == ax.transData]
        patches, collections = list(ax.patches), list(ax.collections)

        def are(artists, cls):
            return bool(artists) and all(isinstance(artist, cls) for artist in artists)

        if ax.name != "rectilinear" or ax.images or ax.tables or bool(patches) + bool(collections) > 1:
            raise Unknown
        if collections:
            if lines or not are(collections, matplotlib.collections.PathCollection):
                raise Unknown
            return "scatter", self.scatter
        if are(patches, matplotlib.patches.PathPatch) and lines:
            return "box_and_whisker", self.boxes
        if are(patches, matplotlib.patches.Wedge) and not lines:
            return "pie", self.pie
        if are(patches, matplotlib.patches.Rectangle) and not lines:
            return "bar", self.bars
        if lines and not patches:
            return "line", self.lines
        raise Unknown

    def titles(self, ax, turned=False):
        """What stands at the axes of a drawing; x is along the categories, though the
        drawing is turned."""
        texts = [ax.get_xlabel(), ax.get_ylabel()]
        told = {}
        for axis, text in zip("xy", reversed(texts) if turned else texts):
            unit = re.search(r"[(\[]([^()\[\]]+)[)\]]", text)
            told[axis + "_label"], told[axis + "_unit"] = text or None, unit and unit[1]
        return told

    def plane(self, ax, elements):
        elements = [element for element in elements if element["points"]]
        if not elements:
            raise Unknown
        told = self.titles(ax)
        for name, axis, scale in ("x", ax.xaxis, ax.get_xscale()), ("y", ax.yaxis, ax.get_yscale()):
            axis = Axis(axis, scale, self)
            told.update({name + "_ticks": axis.ticks, name + "_tick_labels": axis.labels, name + "_scale": axis.scale})
        return {**told, "elements": elements}

    def points(self, label, xs, ys):
        self.count(len(xs))
        points = zip(coordinates(xs), coordinates(ys))
        return {"label": label, "points": [list(point) for point in points if None not in point]}

    def lines(self, ax):
        elements = []
        for line in ax.lines:
            if line.get_transform() == ax.transData:
                label = re.sub(r"^_child(\d+)$", r"Line \1", line.get_label())
                elements.append(self.points(label, line.get_xdata(), line.get_ydata()))
        return self.plane(ax, elements)

    def scatter(self, ax):
        elements = []
        for collection in ax.collections:
            places = collection.get_offsets()
            label = re.sub(r"^_child(\d+)$", r"Scatter \1", collection.get_label())
            elements.append(self.points(label, places[:, 0], places[:, 1]))
        told = self.plane(ax, elements)
        for i, name in enumerate("xy"):
            if told[name + "_scale"] == "datetime":  # offsets are numbers
                axis = Axis((ax.xaxis, ax.yaxis)[i], "linear", self)
                for element in told["elements"]:
                    for point in element["points"]:
                        point[i] = axis.place(point[i])
        return told

    def bars(self, ax):
        from matplotlib.container import BarContainer

        containers = [c for c in ax.containers if isinstance(c, BarContainer)]
        if sum(map(len, containers)) != len(ax.patches):
            raise Unknown  # they are other rectangles
        lying = all(c.orientation == "horizontal" for c in containers)
        axis = Axis(ax.yaxis if lying else ax.xaxis, "linear", self)
        elements = []
        for container in containers:
            self.count(len(container))
            group = re.sub(r"^_container(\d+)$", r"Group \1", container.get_label())
            for bar in container:
                place = bar.get_y() + bar.get_height() / 2 if lying else bar.get_x() + bar.get_width() / 2
                value = number(bar.get_width() if lying else bar.get_height())
                if value is not None:
                    elements.append({"label": axis.name(place), "group": group, "value": value})
        return {**self.titles(ax, lying), "elements": elements}

    def pie(self, ax):
        self.count(len(ax.patches))
        # Angles are of single precision.
        return {"elements": [
            {"label": wedge.get_label(), "angle": round(abs(float(wedge.theta2) - float(wedge.theta1)), 4), "radius": float(wedge.r)}
            for wedge in ax.patches
        ]}

    def boxes(self, ax):
        self.count(len(ax.patches) * len(ax.lines))
        boxes = [Box(patch) for patch in ax.patches]
        strokes, marks = [], []
        for line in ax.lines:
            xs, ys = line.get_xdata(), line.get_ydata()
            self.count(len(xs))
            points = [(float(x), float(y)) for x, y in zip(xs, ys)]
            if line.get_linestyle() == "None":
                marks.append(points)
            elif len(points) == 2 and points[0] != points[1]:
                strokes.append(points)
        if len(marks) == 2 * len(boxes):
            marks = marks[1::2]  # the first ones are the means
        marks = [mark for points in marks for mark in points]
        # The median lies across its box, from side to side.
        across = [{i for i in (0, 1) if a[i] == b[i]} for a, b in strokes for box in boxes if box.holds(a) and box.holds(b)]
        if not across or len(across[0]) != 1:
            raise Unknown
        (along,) = across[0]  # the coordinate of the values
        axis = Axis(ax.yaxis if along == 0 else ax.xaxis, "linear", self)
        return {
            **self.titles(ax, along == 0),
            "elements": [self.box(box, strokes, marks, along, axis) for box in boxes],
        }

    def box(self, box, strokes, marks, along, axis):
        side = 1 - along
        low, high = box.low[along], box.high[along]
        centre = (box.low[side] + box.high[side]) / 2
        told = {"label": axis.name(centre), "min": low, "first_quartile": low, "median": None, "third_quartile": high, "max": high}
        widest = 0
        for a, b in strokes:
            if not all(box.low[side] <= point[side] <= box.high[side] for point in (a, b)):
                continue
            if a[along] == b[along]:
                width = abs(a[side] - b[side])
                if low <= a[along] <= high and width > widest:  # caps are narrower
                    told["median"], widest = a[along], width
            elif a[side] == b[side]:
                ends = sorted((a[along], b[along]))
                if math.isclose(ends[1], low):
                    told["min"] = ends[0]
                elif math.isclose(ends[0], high):
                    told["max"] = ends[1]
        if told["median"] is None:
            raise Unknown
        told["outliers"] = [
            mark[along] for mark in marks
            if math.isclose(mark[side], centre, abs_tol=1e-9) and math.isfinite(mark[along]) and not told["min"] <= mark[along] <= told["max"]
        ]
        return told
