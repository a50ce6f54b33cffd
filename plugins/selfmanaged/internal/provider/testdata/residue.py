# Things that an execution may leave behind. Each kind is a function that leaves it and
# one that says whether it is there. The names at the end are what the test asks for.
import builtins, ctypes, fcntl, gc, inspect, locale, mmap, os, random, resource, select, signal  # noqa: E401
import socket, stat, struct, subprocess, sys, tempfile, threading, time  # noqa: E401

libc = ctypes.CDLL(None, use_errno=True)
KEY = 0x51DE
MARK = "residue"
held = []  # what would end with its object otherwise
kinds = {}


def kind(leave, find, name=None):
    kinds[name or leave.__name__] = (leave, find)


def path_kind(name, path, make=None):
    def leave():
        os.makedirs(os.path.dirname(path), exist_ok=True)
        (make or (lambda p: open(p, "w").write(MARK)))(path)

    kind(leave, lambda: any(map(os.path.lexists, [path, *further(path)])), name)


def further(path):
    """The further names that a path in the workspace has."""
    text = os.fsdecode(path)
    if not text.startswith("/workspace/"):
        return []
    return [top + text.removeprefix("/workspace") for top in ("/home/user", "/mnt/user-data")]


for name, path in {
    "file": "/workspace/residue", "hidden_file": "/workspace/.residue", "file_in_directory": "/workspace/d/e/f/residue",
    "main_module": "/workspace/main.py", "shadowing_module": "/workspace/json.py", "byte_code": "/workspace/__pycache__/residue.pyc",
    "sitecustomize": "/workspace/sitecustomize.py", "usercustomize": "/workspace/.local/lib/python3.11/site-packages/usercustomize.py",
    "path_file": "/workspace/.local/lib/python3.11/site-packages/residue.pth", "packages": "/workspace/.packages/python/residue.py",
    "node_modules": "/workspace/node_modules/residue/index.js", "artifact": "/workspace/artifacts/residue.png",
    "shell_startup": "/workspace/.bashrc", "shell_profile": "/workspace/.profile", "shell_history": "/workspace/.bash_history",
    "cache": "/workspace/.cache/pip/residue", "configuration": "/workspace/.config/residue", "netrc": "/workspace/.netrc",
    "temporary_file": "/tmp/residue", "temporary_directory": "/tmp/d/residue", "matplotlib": "/tmp/matplotlibrc",
    "shared_memory_file": "/dev/shm/residue", "named_semaphore": "/dev/shm/sem.residue",
    "file_at_home": "/home/user/residue_at_home", "user_data": "/mnt/user-data/residue_of_the_user",
}.items():  # fmt: skip
    path_kind(name, path)
path_kind("symbolic_link", "/workspace/link", lambda p: os.symlink("/etc/passwd", p))
path_kind("dangling_link", "/tmp/link", lambda p: os.symlink("/nowhere", p))
path_kind("hard_link", "/workspace/hard", lambda p: (open("/workspace/soft", "w").close(), os.link("/workspace/soft", p)))
path_kind("fifo", "/tmp/fifo", os.mkfifo)
path_kind("socket_file", "/tmp/socket", lambda p: held.append(bound(socket.AF_UNIX, p)))
path_kind("empty_directory", "/workspace/empty", os.mkdir)
path_kind("unreadable", "/workspace/none", lambda p: os.close(os.open(p, os.O_CREAT, 0)))
path_kind("strange_name", b"/workspace/\xff\n", lambda p: open(p, "w").close())


def bound(family, address, type=socket.SOCK_STREAM):
    s = socket.socket(family, type)
    s.bind(address)
    if type == socket.SOCK_STREAM:
        s.listen()
    return s


def cannot(do):
    try:
        do()
    except OSError:
        return True
    return False


def tempfile_name():
    held.append(tempfile.mkstemp(prefix=MARK))


kind(tempfile_name, lambda: any(n.startswith(MARK) and n != MARK for n in os.listdir("/tmp")))


def space():
    open("/workspace/space", "wb").write(bytes(4 << 20))


def used(directory):
    s = os.statvfs(directory)
    return s.f_blocks - s.f_bfree


kind(space, lambda: used("/workspace") > 512)


def open_and_removed():
    f = open("/tmp/removed", "wb")
    f.write(bytes(4 << 20))
    os.unlink("/tmp/removed")
    held.append(f)


kind(open_and_removed, lambda: used("/tmp") > 512)


def nodes():
    for i in range(100):
        open(f"/dev/shm/n{i}", "w").close()


kind(nodes, lambda: len(os.listdir("/dev/shm")) > 50)
kind(lambda: os.symlink("/tmp", "/workspace/tmp"), lambda: os.path.islink("/workspace/tmp"), "link_to_directory")


def lock():
    f = open("/tmp/lock", "w")
    fcntl.flock(f, fcntl.LOCK_EX)
    held.append(f)


def locked():
    with open("/tmp/lock", "w") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return True
    os.unlink("/tmp/lock")
    return False


kind(lock, locked)


def abstract_socket():
    held.append(bound(socket.AF_UNIX, "\0residue"))


def is_bound(family, address, type=socket.SOCK_STREAM):
    return cannot(lambda: bound(family, address, type).close())


kind(abstract_socket, lambda: is_bound(socket.AF_UNIX, "\0residue"))


def loopback_port():
    held.append(bound(socket.AF_INET, ("127.0.0.1", 4711)))


def loopback_datagrams():
    held.append(bound(socket.AF_INET, ("127.0.0.1", 4711), socket.SOCK_DGRAM))


def loopback_port_6():
    held.append(bound(socket.AF_INET6, ("::1", 4712)))


kind(loopback_port, lambda: is_bound(socket.AF_INET, ("127.0.0.1", 4711)))
kind(loopback_datagrams, lambda: is_bound(socket.AF_INET, ("127.0.0.1", 4711), socket.SOCK_DGRAM))
if socket.has_ipv6 and not cannot(lambda: bound(socket.AF_INET6, ("::1", 0)).close()):
    kind(loopback_port_6, lambda: is_bound(socket.AF_INET6, ("::1", 4712)))


def shared_memory():
    held.append(libc.shmget(KEY, 4096, 0o1666))


def semaphores():
    held.append(libc.semget(KEY, 1, 0o1666))


def message_queue():
    held.append(libc.msgget(KEY, 0o1666))


kind(shared_memory, lambda: libc.shmget(KEY, 0, 0) >= 0)
kind(semaphores, lambda: libc.semget(KEY, 0, 0) >= 0)
if libc.msgget(KEY + 1, 0o1666) >= 0:
    kind(message_queue, lambda: libc.msgget(KEY, 0) >= 0)


def posix_queue():
    held.append(libc.mq_open(b"/residue", os.O_CREAT | os.O_RDWR, 0o666, None))


if libc.mq_open(b"/probe", os.O_CREAT | os.O_RDWR, 0o666, None) >= 0:
    kind(posix_queue, lambda: libc.mq_open(b"/residue", os.O_RDWR) >= 0)


def process():
    held.append(subprocess.Popen(["sleep", "4711"], start_new_session=True))


def orphan():
    subprocess.run(["sh", "-c", "setsid sleep 4712 >/dev/null 2>&1 &"])


def commands():
    lines = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            lines.append(open(f"/proc/{pid}/cmdline").read())
        except OSError:
            pass
    return "".join(lines)


kind(process, lambda: "4711" in commands())
kind(orphan, lambda: "4712" in commands())


def zombie():
    if os.fork() == 0:
        os._exit(0)
    time.sleep(0.01)


def states():
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            found.append(open(f"/proc/{pid}/stat").read().rsplit(")", 1)[1].split()[0])
        except OSError:
            pass
    return found


kind(zombie, lambda: "Z" in states())


def many_processes():
    for _ in range(5):
        if os.fork() == 0:
            signal.pause()
            os._exit(0)


kind(many_processes, lambda: len(states()) > 5)


def thread():
    threading.Thread(target=time.sleep, args=(4711,), daemon=True).start()


kind(thread, lambda: len(os.listdir("/proc/self/task")) > 1)


def terminal():
    held.append(os.openpty())


kind(terminal, lambda: any(n.isdigit() for n in os.listdir("/dev/pts")))


def memory_file():
    fd = os.memfd_create("residue")
    held.append(fd)


def descriptors():
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            found.append(os.readlink(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
    return found


kind(memory_file, lambda: any("memfd" in d for d in descriptors()))


def inotify():
    held.append(libc.inotify_init())


kind(inotify, lambda: any("inotify" in d for d in descriptors()))


def epoll():
    held.append(select.epoll())


kind(epoll, lambda: any("eventpoll" in d for d in descriptors()))


def many_descriptors():
    held.extend(os.pipe() for _ in range(20))


kind(many_descriptors, lambda: len(descriptors()) > 20)


def timer():
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, 4711)


kind(timer, lambda: signal.getitimer(signal.ITIMER_REAL)[0] > 0)
kind(lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN), lambda: signal.getsignal(signal.SIGHUP) == signal.SIG_IGN, "ignored_signal")
kind(lambda: signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2}), lambda: signal.SIGUSR2 in signal.pthread_sigmask(signal.SIG_BLOCK, ()), "blocked_signal")
kind(lambda: os.umask(0o077), lambda: os.umask(0o022) == 0o077, "umask")
kind(lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)), lambda: resource.getrlimit(resource.RLIMIT_NOFILE)[1] == 512, "limit")
kind(lambda: os.nice(5), lambda: os.nice(0) == 5, "niceness")
kind(lambda: libc.prctl(15, b"residue", 0, 0, 0), lambda: "residue" in open("/proc/self/comm").read(), "process_name")
kind(lambda: os.environ.update(RESIDUE="1"), lambda: "RESIDUE" in os.environ, "variable")
kind(lambda: os.chdir("/tmp"), lambda: os.getcwd() == "/tmp", "directory")
kind(lambda: setattr(builtins, MARK, 1), lambda: hasattr(builtins, MARK), "builtin")
kind(lambda: sys.modules.update(residue=sys), lambda: MARK in sys.modules, "module")
kind(lambda: sys.path.insert(0, MARK), lambda: MARK in sys.path, "module_path")
kind(lambda: setattr(inspect, MARK, 1), lambda: hasattr(inspect, MARK), "changed_module")
kind(lambda: sys.setrecursionlimit(4711), lambda: sys.getrecursionlimit() == 4711, "recursion_limit")
kind(gc.disable, lambda: not gc.isenabled(), "collector")
kind(lambda: random.seed(4711), lambda: random.Random(4711).getstate() == random.getstate(), "random_state")
kind(lambda: socket.setdefaulttimeout(4711), lambda: socket.getdefaulttimeout() == 4711, "default_timeout")
kind(lambda: libc.prctl(4, 0, 0, 0, 0), lambda: libc.prctl(3, 0, 0, 0, 0) == 0, "not_dumpable")
kind(lambda: libc.prctl(1, signal.SIGUSR1, 0, 0, 0), lambda: parent_death_signal() == signal.SIGUSR1, "parent_death_signal")
kind(lambda: locale.setlocale(locale.LC_ALL, "C"), lambda: locale.setlocale(locale.LC_CTYPE) == "C", "locale")


def parent_death_signal():
    number = ctypes.c_int()
    libc.prctl(2, ctypes.byref(number), 0, 0, 0)
    return number.value


def key():
    return libc.syscall(KEYCTL, 10, -3, b"user", b"residue", 0)


# gVisor has no keys, and Linux may have.
ADD_KEY, KEYCTL = {"x86_64": (248, 250), "aarch64": (217, 219)}[os.uname().machine]
if libc.syscall(ADD_KEY, b"user", b"probe", b"x", 1, -2) >= 0:
    kind(lambda: held.append(libc.syscall(ADD_KEY, b"user", b"residue", b"x", 1, -3)), lambda: key() >= 0, "key")



def memory():
    m = mmap.mmap(-1, 4 << 20)
    m.write(b"RESIDUE!" * (len(m) // 8))
    held.append(m)


def dirty():
    regions = [m for m in held if isinstance(m, mmap.mmap)] or [mmap.mmap(-1, 4 << 20) for _ in range(4)]
    return any(m[:].count(0) != len(m) for m in regions)


kind(memory, dirty)

if action == "kinds":
    print("\n".join(kinds))
else:
    for name, (leave, find) in kinds.items():
        try:
            if action in ("leave", "both"):
                leave()
        except BaseException as e:
            print("left not", name, repr(e))
    for name, (leave, find) in kinds.items():
        if action in ("find", "both") and find():
            print(name)
    if action == "find":
        print("looked", len(kinds))
sys.stdout.flush()
os._exit(0)  # threads and processes of its own are left to the sandbox
