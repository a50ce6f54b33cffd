# Finds and replaces text in the files of a sandbox. What matches is decided outside: RE2 is
# not Python's. What is told here are the lines that may match, so that nothing else has to
# leave the sandbox. It stands behind files.py.
import re
import struct
import time
import zlib

# As package filetext has them.
LINE_BYTES = 64 << 10
HEAD_BYTES = 8 << 10

PIECE = 1 << 20
QUICK = 4 << 20  # of a file are looked at as a whole before it is taken line by line
DEEPEST = 256
DRAFTS = re.compile(rb"\.draft-([0-9a-f]{24}|[a-z2-7]{16})")


class Enough(Exception):
    """Ends the search for one answer, and says from where on the next has it."""


def needle_of(r):
    """A function that finds what each line that matches has; None if nothing is known."""
    if not r["needles"]:
        return None
    def place(forms):
        return b"(?:" + b"|".join(re.escape(f.encode()) for f in forms) + b")" if len(forms) > 1 else re.escape(forms[0].encode())
    return re.compile(b"|".join(b"".join(place(forms) for forms in needle) for needle in r["needles"])).search


class Search:
    def __init__(self, r):
        self.most, self.end = r["most"], time.monotonic() + r["seconds"]
        self.endings = tuple(e.encode() for e in r["endings"] or [])
        self.has = needle_of(r)
        self.skipped = False
        self.told, self.size, self.file = [], 0, None

    def tell(self, rel, number, line):
        if rel != self.file:
            self.file = rel
            self.add(struct.pack(">BI", 0, len(rel)) + rel)
        self.add(struct.pack(">BQI", 1, number, len(line)) + line)

    def add(self, record):
        self.told.append(record)
        self.size += len(record)

    def enough(self):
        return self.size >= self.most or time.monotonic() > self.end

    def directory(self, path, rel, depth, since):
        """Look through a directory. since are the names that lead to where the answer before
        ended, and how far it was there: files and directories up to that are done."""
        try:
            names = sorted(os.listdir(path))
        except OSError as e:
            if not rel:
                raise
            self.skipped = self.skipped or e.errno != errno.ENOENT
            return
        names_since, at = since
        for name in names:
            if DRAFTS.fullmatch(name) or names_since and name < names_since[0]:
                continue
            here, below = (), None
            if names_since and name == names_since[0]:
                here, below = names_since[1:], at
                if not here and at is None:
                    continue
            full, under = os.path.join(path, name), os.path.join(rel, name)
            try:
                mode = os.lstat(full).st_mode
            except OSError:
                continue
            if stat.S_ISDIR(mode):
                if depth == DEEPEST:
                    self.skipped = True
                else:
                    self.directory(full, under, depth + 1, (here, below))
            elif stat.S_ISREG(mode) and (not self.endings or under.endswith(self.endings)):
                try:
                    self.look(full, under, None if here else below)
                except (OSError, Refused):
                    pass  # it has gone, or may not be read
            if self.enough():
                raise Enough(under, None)

    def look(self, path, rel, at):
        with open_regular(path) as f:
            offset, number, inside = at or (0, 0, False)
            if not offset:
                head = f.read(HEAD_BYTES) or b""
                if b"\0" in head:
                    return
                if self.has:
                    head += f.read(QUICK - len(head)) or b""
                    if len(head) < QUICK and not self.has(head):
                        return
                f.seek(0)
            else:
                f.seek(offset)
            self.lines(f, rel, offset, number, inside)

    def lines(self, f, rel, offset, number, inside):
        steps = 0
        while True:
            if inside:  # what is behind the part of a line that counts
                line = f.readline(PIECE)
                offset += len(line)
                inside = bool(line) and not line.endswith(b"\n")
            else:
                line = f.readline(LINE_BYTES)
                if not line:
                    return
                number, offset = number + 1, offset + len(line)
                if self.has is None or self.has(line):
                    self.tell(rel, number, line)
                inside = len(line) == LINE_BYTES and not line.endswith(b"\n")
            steps += 1
            if self.size >= self.most or steps % 64 == 0 and time.monotonic() > self.end:
                raise Enough(rel, (offset, number, inside))


def open_regular(path):
    """Open a regular file for reading, and nothing else: a pipe would have no end."""
    f = open(path, "rb", PIECE, opener=lambda p, flags: os.open(p, flags | os.O_NOFOLLOW | os.O_NONBLOCK))
    if not stat.S_ISREG(os.fstat(f.fileno()).st_mode):
        f.close()
        raise Refused("conflict", "is not a regular file")
    return f


def op_search(r):
    """The lines below a path that may match, in the order of paths: as many as there is room
    and time for. Where there are more, "cursor" says where to go on."""
    s, since = Search(r), ((), None)
    if r["cursor"]:
        rel, at = json.loads(base64.b64decode(r["cursor"]))
        since = (base64.b64decode(rel).split(b"/"), at)
    root = os.fsencode(r["path"])
    answer = {"file": describe(root, follow=True)}
    sys.setrecursionlimit(5000)
    try:
        if answer["file"]["type"] == "directory":
            s.directory(root, b"", 1, since)
        elif not r["inside"]:
            s.look(os.path.realpath(root), b"", since[1])
    except Enough as e:
        rel, at = e.args
        answer["cursor"] = base64.b64encode(json.dumps([base64.b64encode(rel).decode(), at]).encode()).decode()
    answer["skipped"], answer["data"] = s.skipped, base64.b64encode(zlib.compress(b"".join(s.told), 1)).decode()
    return answer


def op_replace(r):
    """Replace a text in files, one after the other, as long as there is time. Files has how
    often each had it; the last of them is the one that failed, if one did."""
    files, end = [], time.monotonic() + r["seconds"]
    old, new = base64.b64decode(r["old"]), base64.b64decode(r["new"] or "")
    for path in r["paths"]:
        files.append({"path": shown(path), "count": 0})
        try:
            files[-1]["count"] = replace(path, old, new)
        except Refused as e:
            return {"files": files, "failed": e.answer}
        except OSError as e:
            return {"files": files, "failed": refusal(e)}
        if time.monotonic() > end:
            break
    return {"files": files}


def replace(path, old, new):
    """Replace a text in a file, if it is there, and count. The file is changed whole or not
    at all."""
    draft = draft_beside(path)
    with open_regular(path) as f:
        info = os.fstat(f.fileno())
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as to:
                count = replace_all(f, info.st_size, to, old, new)
            if count:
                regular(path, follow=False)
                os.chmod(draft, stat.S_IMODE(info.st_mode) & 0o777)
                os.rename(draft, path)
        finally:
            op_discard({"draft": draft})
    return count


def replace_all(f, size, to, old, new):
    count, held, piece = 0, b"", b" "
    while piece:
        piece = f.read(min(size, PIECE)) or b""
        size -= len(piece)
        *parts, rest = (held + piece).split(old)
        for part in parts:
            to.write(part)
            to.write(new)
        count += len(parts)
        # What may be the beginning of the text stays for the next round.
        keep = min(len(rest), len(old) - 1) if piece else 0
        to.write(rest[:len(rest) - keep])
        held = rest[len(rest) - keep:]
    return count
