# must: nothing that a session wrote, wherever it could, is seen by another
# status: succeeded
# stdout: planted True
planted = []
for top, dirs, _ in os.walk("/"):
    dirs[:] = [] if top.startswith(("/proc/", "/sys/")) or top.count("/") > 2 else dirs
    try:
        open(os.path.join(top, "planted-everywhere"), "w").close()
        planted.append(top)
    except OSError:
        pass
print("planted", len(planted) >= 3)
# --- another session
# status: succeeded
# stdout: clean
# control: session
hits = []
for top, dirs, names in os.walk("/"):
    dirs[:] = [] if top.startswith(("/proc/", "/sys/")) or top.count("/") > 2 else dirs
    hits += [top] if "planted-everywhere" in names else []
found(" ".join(hits))
