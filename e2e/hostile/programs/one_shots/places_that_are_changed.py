# must: the places that can be written stay what they are: no other mode, owner, name or attribute
# status: succeeded
# stdout: ((mode|owner|move|remove|attribute) [A-Z]+\n)+seed -?\d+
for place in "/workspace", "/tmp", "/dev/shm":
    attempt("mode", os.chmod, place, 0)
    attempt("owner", os.chown, place, 1000, 1000)
    attempt("move", os.rename, place, place + "2")
    attempt("remove", os.rmdir, place)
    attempt("attribute", os.setxattr, place, "user.planted", b"x")
print(seed())
# --- next one-shot
# status: succeeded
# stdout: handed over\n/workspace 1777 0 \[\]\n/tmp 1777 0 \[\]\n/dev/shm 1777 0 \[\]
print(sandbox())
for place in "/workspace", "/tmp", "/dev/shm":
    s = os.stat(place)
    try:
        names = os.listxattr(place)
    except OSError:
        names = []
    print(place, f"{s.st_mode & 0o7777:o}", s.st_uid, names)
