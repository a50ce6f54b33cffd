# The place of a program: a directory of its own below ROOT, with all that is known of
# it. This file stands behind core.py of package supervise; see calls.py.
import json

ROOT = "/tmp/.sandbox-broker"
STEP = 0.01
FORGET = 60  # seconds after the end of an execution
REMEMBERED = 32  # commands that have ended
STREAMS = ("stdout", "stderr")
COUNTERS = ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control")


def write_whole(path, text):
    with open(path + ".new", "w") as f:
        f.write(text)
    os.rename(path + ".new", path)


def places():
    try:
        return sorted(os.listdir(ROOT))
    except OSError:
        return []


def meta(place):
    try:
        return json.loads(read(place + "/meta", "{}"))
    except ValueError:
        return {}


def starts(place, stream):
    prefix = stream + "."
    return sorted(int(n[len(prefix):]) for n in os.listdir(place) if n.startswith(prefix) and n[len(prefix):].isdigit())


def total(place, stream):
    while True:
        kept = starts(place, stream)
        try:
            return kept[-1] + os.stat("%s/%s.%d" % (place, stream, kept[-1])).st_size if kept else 0
        except FileNotFoundError:
            continue  # it was dropped meanwhile


def piece(place, stream, offset, most):
    """What is kept of a stream from an offset on: where it begins, and its bytes."""
    while True:
        kept = starts(place, stream)
        if not kept:
            return offset, b""
        first = max([s for s in kept if s <= offset], default=kept[0])
        offset = max(offset, first)
        try:
            with open("%s/%s.%d" % (place, stream, first), "rb") as f:
                if offset - first >= os.fstat(f.fileno()).st_size:
                    return offset, b""  # no file can be sought so far as an offset may be
                f.seek(offset - first)
                return offset, f.read(most)
        except FileNotFoundError:
            continue  # it was dropped meanwhile
