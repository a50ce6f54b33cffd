# Does with the files of a sandbox what the broker's contract says, with the rights of
# the user that it runs as: the file calls of services know no modes, no copies and no
# list of a large tree, and are another user's. What reads a request and prints its answer
# is put behind it (guestfiles.go). It needs Python 3.8 and nothing besides.
import base64
import errno
import json
import os
import shutil
import stat
import sys


class Refused(Exception):
    def __init__(self, code, message, field="path"):
        super().__init__(message)
        self.answer = {"code": code, "message": message, "field": field}


CODES = {
    errno.ENOENT: "not_found", errno.EACCES: "not_allowed", errno.EPERM: "not_allowed", errno.EROFS: "not_allowed",
    errno.EEXIST: "conflict", errno.ENOTEMPTY: "conflict", errno.EISDIR: "conflict", errno.ENOTDIR: "conflict",
    errno.ENOSPC: "full", errno.EDQUOT: "full", errno.EFBIG: "full",
    errno.ENAMETOOLONG: "invalid", errno.EINVAL: "invalid", errno.ELOOP: "invalid", errno.EXDEV: "invalid",
}


def shown(path):
    return os.fsencode(path).decode("utf-8", "replace")


def describe(path, follow=False):
    info = os.stat(path) if follow else os.lstat(path)
    mode = info.st_mode
    kind = "file" if stat.S_ISREG(mode) else "directory" if stat.S_ISDIR(mode) else "symlink" if stat.S_ISLNK(mode) else "other"
    return {
        "path": shown(path), "type": kind, "size": info.st_size if kind == "file" else 0, "mode": stat.S_IMODE(mode) & 0o777,
        "modified": info.st_mtime_ns, "target": shown(os.readlink(path)) if kind == "symlink" else "",
    }


def regular(path, follow=True):
    """Describe what must be a regular file."""
    info = describe(path, follow)
    if info["type"] == "directory":
        raise Refused("conflict", "is a directory")
    if info["type"] != "file":
        raise Refused("conflict", "is not a regular file")
    return info


def parent_of(path, field="path"):
    """The directory of a path; one that is a file is in the way."""
    parent = os.path.dirname(path)
    if not os.path.isdir(parent):
        if os.path.lexists(parent):
            raise Refused("conflict", "its parent is not a directory", field)
        raise Refused("not_found", "its directory is not there", field)
    return parent


def op_stat(r):
    return {"file": describe(r["path"])}


def op_open(r):
    """Describe a file and, if it is a small part of it that is asked for, read it."""
    info = regular(r["path"])
    with open(r["path"], "rb") as f:  # whether the user may
        offset = r["offset"] if r["offset"] >= 0 else max(info["size"] + r["offset"], 0)
        rest = max(info["size"] - offset, 0)
        length = min(rest, r["length"] or rest)
        found = {"file": info, "real": os.path.realpath(r["path"]), "offset": offset, "length": length, "whole": length <= r["most"]}
        if found["whole"]:
            f.seek(offset)
            found["data"] = base64.b64encode(f.read(length)).decode()
    return found


def op_draft(r):
    """Make the place where content is stored before it appears."""
    path = r["path"]
    if r["parents"]:
        os.makedirs(os.path.dirname(path), exist_ok=True)
    parent_of(path)
    mode = 0
    if os.path.lexists(path):
        mode = regular(path, follow=False)["mode"]
    with open(os.open(r["draft"], os.O_WRONLY | os.O_CREAT, 0o600), "wb"):
        pass
    return {"mode": mode}


def op_append(r):
    """Add content to a draft: from the request, or from a file that the service wrote."""
    data = base64.b64decode(r["data"] or "")
    if r["upload"]:
        if not os.path.exists(r["upload"]) and os.stat(r["draft"]).st_size == r["offset"] + r["length"]:
            return {}  # a call before, whose answer was lost, did it
        with open(r["upload"], "rb") as f:
            data = f.read()
    with open(r["draft"], "r+b") as f:
        f.truncate(r["offset"])  # what a call before, whose answer was lost, has added
        f.seek(r["offset"])
        f.write(data)
    if r["upload"]:
        op_discard({"draft": r["upload"]})
    return {}


def op_commit(r):
    """Give a draft its name."""
    path = r["path"]
    if not os.path.lexists(r["draft"]) and os.path.lexists(path):
        return {"file": describe(path)}  # a call before, whose answer was lost, did it
    os.chmod(r["draft"], r["mode"])
    if os.path.isdir(path) and not os.path.islink(path):
        raise Refused("conflict", "is a directory")
    os.rename(r["draft"], path)
    return {"file": describe(path)}


def op_discard(r):
    try:
        os.unlink(r["draft"])
    except OSError:  # it is gone, or another user's
        pass
    return {}


def op_mkdir(r):
    there = os.path.isdir(r["path"])
    os.makedirs(r["path"], mode=0o755, exist_ok=True)
    if r["mode"] and not there:
        os.chmod(r["path"], r["mode"])
    return {"file": describe(r["path"])}


def op_chmod(r):
    path = os.path.realpath(r["path"])
    if path in ("/", os.path.realpath(r["workspace"])):
        raise Refused("not_allowed", "stays as it is as long as the instance")
    os.chmod(path, r["mode"])
    return {"file": describe(path)}


def target_of(r):
    """Check where something is to be moved or copied to."""
    source, target = r["path"], r["to"]
    info = describe(source)
    parent_of(target, "to")
    if os.path.lexists(target):
        if os.path.samefile(source, target) if os.path.exists(source) and os.path.exists(target) else False:
            raise Refused("conflict", "is the same file", "to")
        if describe(target)["type"] == "directory":
            raise Refused("conflict", "is a directory", "to")
        if not r["overwrite"]:
            raise Refused("conflict", "is there already", "to")
        if info["type"] == "directory":
            raise Refused("conflict", "is a file, which no directory replaces", "to")
    if info["type"] == "directory" and (os.path.realpath(target) + "/").startswith(os.path.realpath(source) + "/"):
        raise Refused("invalid", "is within what is to go there", "to")
    return info


def draft_beside(path):
    return os.path.join(os.path.dirname(path), ".draft-" + base64.b32encode(os.urandom(10)).decode().lower())


def op_move(r):
    target_of(r)
    source, target = r["path"], r["to"]
    try:
        os.rename(source, target)
    except OSError as e:
        if e.errno != errno.EXDEV:
            raise
        draft = draft_beside(target)
        try:
            shutil.move(source, draft)
            os.rename(draft, target)
        finally:
            remove(draft)
    return {"file": describe(target)}


def op_copy(r):
    info = target_of(r)
    source, target = r["path"], r["to"]
    draft = draft_beside(target)
    try:
        if info["type"] == "directory":
            shutil.copytree(source, draft, symlinks=True)
        elif info["type"] in ("file", "symlink"):
            shutil.copy2(source, draft, follow_symlinks=False)
        else:
            raise Refused("conflict", "is not a regular file")
        os.rename(draft, target)
    except shutil.Error as e:
        raise Refused("conflict", "not all of it could be copied: " + str(e.args[0])[:300]) from None
    finally:
        remove(draft)
    return {"file": describe(target)}


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path, ignore_errors=True)
    elif os.path.lexists(path):
        os.unlink(path)


def op_remove(r):
    path = r["path"]
    if path in ("/", r["workspace"]):
        raise Refused("not_allowed", "stays as long as the instance")
    if describe(path)["type"] != "directory":
        os.unlink(path)
    elif r["recursive"]:
        shutil.rmtree(path)
    else:
        os.rmdir(path)
    return {}


def op_list(r):
    """What is below a directory, in the order of paths, as lines of JSON."""
    root, most = r["path"], r["most"]
    if describe(root, follow=True)["type"] != "directory":
        raise Refused("conflict", "is not a directory")
    found = []

    def walk(directory, depth):
        try:
            names = sorted(os.listdir(directory))
        except OSError:
            if directory == root:
                raise
            return
        for name in names:
            if len(found) > most:
                return
            path = os.path.join(directory, name)
            try:
                info = describe(path)
            except FileNotFoundError:
                continue
            info["below"] = shown(os.path.relpath(path, root))
            found.append(info)
            if info["type"] == "directory" and depth > 1:
                walk(path, depth - 1)

    sys.setrecursionlimit(5000)
    walk(root, min(r["depth"], 256))
    return {"files": found[:most], "more": len(found) > most}


def op_marks(r):
    """What regular files lie below artifacts/ of a directory, and how large those of these
    names are that no symbolic link leads to; -1 for what is none."""
    root, found = r["path"], []
    if r["make"]:
        try:
            os.mkdir(os.path.join(root, "artifacts"))
        except OSError:
            pass  # it is there, or something else of that name
    for at, _, names in os.walk(os.path.join(root, "artifacts")):
        for name in names:
            try:
                info = describe(os.path.join(at, name))
            except FileNotFoundError:
                continue
            info["below"] = shown(os.path.relpath(os.path.join(at, name), root))
            if info["type"] == "file":
                found.append(info)
        if len(found) >= 10000:
            break
    return {"files": found, "sizes": [size_of(root, name) for name in r["names"] or []]}


def size_of(root, name):
    path = os.path.normpath(os.path.join(root, name))
    try:
        info = describe(path)
    except OSError:
        return -1
    inside = os.path.realpath(path) == os.path.join(os.path.realpath(root), os.path.relpath(path, root))
    return info["size"] if inside and info["type"] == "file" else -1


def refusal(e):
    return {"code": CODES.get(e.errno, "failed"), "message": (e.strerror or str(e)).lower(), "field": "path"}


def answer(r):
    try:
        os.chdir(r["workspace"])
        for name in ("path", "to", "draft"):
            if r.get(name):
                r[name] = os.path.normpath(os.path.join(r["workspace"], r[name]))
        r["paths"] = [os.path.normpath(os.path.join(r["workspace"], name)) for name in r.get("paths") or []]
        return globals()["op_" + r["op"]](r)
    except Refused as e:
        return e.answer
    except OSError as e:
        return refusal(e)
