# must: who watches the runner's files sees nothing of what the server does for another
# status: succeeded
# stdout: events 0
import ctypes
import select

libc = ctypes.CDLL(None, use_errno=True)
fd = libc.inotify_init1(os.O_NONBLOCK)
for path in b"/run/sandbox", b"/run/sandbox/runner.py", b"/run/sandbox/fork_server.py", b"/proc", b"/usr/bin/python3":
    libc.inotify_add_watch(fd, path, 0xFFF)
hold()
select.select([fd], [], [], 0)
try:
    print("events", len(os.read(fd, 1 << 16)))
except BlockingIOError:
    print("events 0")
# --- meanwhile
# status: succeeded
# stdout: served
import json

print("served")
