# The place of a program: a directory of its own below ROOT, with all that is known of
# it. This file is the second of four that make one script; see calls.py.
import json, os, signal, stat, time

ROOT = "/tmp/.sandbox-broker"
PR_SET_CHILD_SUBREAPER = 36
STEP = 0.01
FORGET = 60  # seconds after the end of an execution
REMEMBERED = 32  # commands that have ended
STREAMS = ("stdout", "stderr")


def read(path, default=""):
    try:
        with open(path) as f:
            return f.read()
    except (OSError, ValueError):
        return default


def write_whole(path, text):
    with open(path + ".new", "w") as f:
        f.write(text)
    os.rename(path + ".new", path)


def kills_for_memory():
    for path in ("/sys/fs/cgroup/memory.events", "/sys/fs/cgroup/memory/memory.oom_control"):
        for line in read(path).splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def descendants(root):
    parents = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            text = read("/proc/%s/stat" % name)
            if text:
                parents[int(name)] = int(text.rpartition(")")[2].split()[1])
    found = []
    for pid in parents:
        up = parents.get(pid)
        while up and up != root:
            up = parents.get(up)
        if up == root and pid != root:
            found.append(pid)
    return found


def send(pids, number):
    reached = False
    for pid in pids:
        try:
            os.kill(pid, number)
            reached = True
        except OSError:
            pass
    return reached


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


def mark(path):
    try:
        i = os.lstat(path)
    except OSError:
        return None
    return "%d %d %d %d" % (i.st_ino, i.st_size, i.st_mtime_ns, i.st_ctime_ns) if stat.S_ISREG(i.st_mode) else None


def marks(directory):
    found = {}
    for at, _, names in os.walk(directory + "/artifacts"):
        for name in names:
            m = mark(at + "/" + name)
            if m:
                found[os.path.relpath(at + "/" + name, directory)] = m
            if len(found) >= 10000:
                return found
    return found


def size_of(directory, name):
    """The size of a file that no symbolic link leads to; -1 if there is none."""
    path = os.path.normpath(directory + "/" + name)
    inside = os.path.realpath(path) == os.path.join(os.path.realpath(directory), os.path.relpath(path, directory))
    m = mark(path) if inside else None
    return int(m.split()[1]) if m else -1
