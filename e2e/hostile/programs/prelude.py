import errno, os, sys, time  # noqa: E401


def attempt(name, action, *args):
    """Print what comes of an attempt: the name of the error, or SUCCEEDED."""
    try:
        value = action(*args)
    except Exception as e:
        number = getattr(e, "errno", None)
        print(name, errno.errorcode.get(number) or f"{type(e).__name__}", flush=True)
    else:
        print(name, "SUCCEEDED", flush=True)
        return value


def found(what):
    """What a probe reports."""
    print(f"found {what}" if what else "clean", flush=True)


def hold():
    """Tell that what is planted is there, and wait until the others are done."""
    if os.environ.get("TOGETHER"):
        return
    open("/workspace/.holding", "w").close()
    while not os.path.exists("/workspace/.release"):
        time.sleep(0.02)


SYSCALLS = {  # x86_64, aarch64
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "mknodat": (259, 33),
    "linkat": (265, 37), "name_to_handle_at": (303, 264), "open_by_handle_at": (304, 265), "open_tree": (428, 428),
    "move_mount": (429, 429), "fsopen": (430, 430), "mount_setattr": (442, 442), "ptrace": (101, 117),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "unshare": (272, 97), "clone": (56, 220), "setns": (308, 268),
    "clone3": (435, 435), "bpf": (321, 280), "io_uring_setup": (425, 425), "init_module": (175, 105),
    "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104), "perf_event_open": (298, 241),
    "userfaultfd": (323, 282), "add_key": (248, 217), "keyctl": (250, 219), "reboot": (169, 142), "swapon": (167, 224),
    "acct": (163, 89), "settimeofday": (164, 170), "clock_settime": (227, 112), "adjtimex": (159, 171),
    "sethostname": (170, 161), "setdomainname": (171, 162), "capset": (126, 91), "prctl": (157, 167),
    "personality": (135, 92), "fanotify_init": (300, 262), "syslog": (103, 116), "vhangup": (153, 58),
    "kcmp": (312, 272), "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "quotactl": (179, 60),
    "setresuid": (117, 147), "setgroups": (116, 159), "seccomp": (317, 277), "landlock_create_ruleset": (444, 444),
    "memfd_secret": (447, 447), "process_madvise": (440, 440), "move_pages": (279, 239), "lookup_dcookie": (212, 18),
    "shmget": (29, 194), "shmat": (30, 196), "semget": (64, 190), "msgget": (68, 186), "msgsnd": (69, 189),
    "mq_open": (240, 180), "ioprio_set": (251, 30), "sched_setscheduler": (144, 119), "timer_create": (222, 107),
    "vmsplice": (278, 75), "splice": (275, 76), "memfd_create": (319, 279), "getrandom": (318, 278),
}


def syscall(name, *args):
    """A system call as it is; OSError if it fails."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    number = SYSCALLS[name][os.uname().machine == "aarch64"]
    args = [ctypes.c_long(a) if isinstance(a, int) else a for a in args]
    result = libc.syscall(ctypes.c_long(number), *args)
    if result == -1:
        raise OSError(ctypes.get_errno(), name)
    return result



HERE, SHUT, SECURE = (os.environ.get(name, "") for name in ("HERE", "SHUT", "SECURE"))  # see doc.go
OPEN = "http://" + HERE


def way_out(line, *headers, body="", then=""):
    """Sends a request to the proxy, byte by byte as it is; its statuses, and all that it says."""
    import re, socket, urllib.parse  # noqa: E401

    proxy = urllib.parse.urlsplit(os.environ["http_proxy"])
    headers = headers or ("Host: " + HERE,)
    said = b""
    try:
        with socket.create_connection((proxy.hostname, proxy.port), timeout=20) as conn:
            conn.sendall("\r\n".join((line, *headers, "Connection: close", "", body)).encode("latin-1"))
            if then:
                said = conn.recv(65536)
                conn.sendall(then.encode("latin-1"))
            while piece := conn.recv(65536):
                said += piece
    except OSError as e:
        said += b"\r\n" + type(e).__name__.encode()
    said = said.decode("latin-1")
    return re.findall(r"(?:^|\r\n)HTTP/1\.[01] (\d+)", said) or [said.rpartition("\r\n")[2][:40]], said


def seed():
    """Tells a sandbox by the hash seed that its forks share."""
    return f"seed {hash('sandbox')}"


def sandbox():
    """Whether the sandbox is that of the first step."""
    return "handed over" if seed() in os.environ["PLANTED"] else "fresh"
