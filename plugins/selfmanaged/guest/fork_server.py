# The part of runner.py that forks it. The server runs as root of the sandbox, serves the
# guest's package forkserver on descriptor 3, and has seen no code and no request of
# anybody. Each fork becomes what a runner is that the guest has started: a process of an
# unprivileged user in namespaces of its own.
import _signal
import _socket
import ctypes
import os
import resource  # noqa: F401: os.wait4 would load it, when a program has ended and somebody waits
import sys

USER = 1000
SOCKET = 3
DESCRIPTORS = 4  # of a fork: standard output and error, the request, the result

CLONE_NEWNS = 0x00020000
CLONE_NEWIPC = 0x08000000
CLONE_NEWPID = 0x20000000
MS_NOSUID, MS_NODEV, MS_NOEXEC = 2, 4, 8
MNT_DETACH = 2
PR_SET_DUMPABLE = 4
PR_SET_SECCOMP = 22
PR_CAPBSET_DROP = 24
SECCOMP_MODE_FILTER = 2
EINVAL = 22

libc = ctypes.CDLL(None, use_errno=True)
unshare, setns, mount, umount2, prctl = libc.unshare, libc.setns, libc.mount, libc.umount2, libc.prctl
mount.argtypes = [ctypes.c_char_p] * 3 + [ctypes.c_ulong, ctypes.c_char_p]
prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4


class Program(ctypes.Structure):
    """struct sock_fprog"""

    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_void_p)]


def check(result, what):
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def drop_capabilities():
    """What this process may is not touched; what it starts gets none."""
    for capability in range(64):
        if prctl(PR_CAPBSET_DROP, capability, 0, 0, 0) < 0:
            if ctypes.get_errno() == EINVAL:  # past the last one of this kernel
                return
            check(-1, f"drop capability {capability}")


def confine(program):
    """What package isolation does to every other program."""
    check(unshare(CLONE_NEWNS | CLONE_NEWIPC), "unshare")
    # The /proc of the whole sandbox goes away, and is not only covered.
    check(umount2(b"/proc", MNT_DETACH), "unmount /proc")
    check(mount(b"proc", b"/proc", b"proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, None), "mount /proc")
    if mount(b"devpts", b"/dev/pts", b"devpts", MS_NOSUID | MS_NOEXEC, b"newinstance,ptmxmode=0666") < 0:
        if ctypes.get_errno() != EINVAL:  # an earlier gVisor has one set of terminals
            check(-1, "mount /dev/pts")
    check(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.addressof(program), 0, 0), "forbid namespaces")
    os.setresgid(USER, USER, USER)
    os.setresuid(USER, USER, USER)
    # The change of the user has hidden the process from itself, as /proc has it.
    check(prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "make it dumpable")
    os.setsid()
    os.chdir(runner.WORKSPACE)


def received(sock):
    """The namespace and the descriptors of the next request; None without one."""
    try:
        text, ancillary, _, _ = sock.recvmsg(32, _socket.CMSG_SPACE(4 * DESCRIPTORS))
    except BlockingIOError:
        return None
    if not text:
        os._exit(0)
    rights = ancillary[0][2]
    return int(text), [int.from_bytes(rights[i : i + 4], sys.byteorder) for i in range(0, len(rights), 4)]


def fork(namespace, own):
    """os.fork, of which the child is in a PID namespace. Own is that of the server. It
    leaves a descriptor open."""
    fd = os.open(f"/proc/{namespace}/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    check(setns(fd, CLONE_NEWPID), "enter the namespace")
    child = os.fork()
    if child > 0:
        check(setns(own, CLONE_NEWPID), "leave the namespace")
    return child


def answer(sock, own, program):
    """Serve what was asked for. The result is whether this is a fork now."""
    while (request := received(sock)) is not None:
        namespace, fds = request
        try:
            pid = fork(namespace, own)
        except OSError as e:
            sock.send(f"refused {e.strerror}".encode())
            pid = -1
        if pid == 0:
            become(sock, fds, program)
            return True
        os.closerange(own + 1, 64)  # one system call, which is what costs here
        if pid > 0:
            sock.send(b"forked %d" % pid)
    return False


def reap(sock):
    """Tell of those that have ended."""
    try:
        while (ended := os.wait4(-1, os.WNOHANG))[0]:
            pid, status, usage = ended
            sock.send(b"exited %d %d %d" % (pid, status, usage.ru_maxrss))
    except ChildProcessError:
        pass


def serve():
    """Serve until the guest ends. It returns in each fork."""
    drop_capabilities()
    with open(f"{runner.HOME}/namespaces.bpf", "rb") as f:
        text = f.read()
    instructions = ctypes.create_string_buffer(text, len(text))
    program = Program(len(text) // 8, ctypes.addressof(instructions))
    os.setgroups([])
    sock = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET, 0, SOCKET)
    sock.setblocking(False)
    wakes = {_signal.SIGCHLD, _signal.SIGUSR1}
    _signal.pthread_sigmask(_signal.SIG_BLOCK, wakes)
    runner.settle()
    own = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
    sock.send(b"ready")
    while True:
        # Whoever asks says so by a signal, after the request. What came while another was
        # served is read with that one, and its signal finds nothing.
        if _signal.sigwait(wakes) == _signal.SIGCHLD:
            reap(sock)
        elif answer(sock, own, program):
            return


def become(sock, fds, program):
    """Become a runner, or end."""
    try:
        sock.detach()
        for fd, number in zip(fds, (1, 2, 3, runner.CHANNEL)):
            os.dup2(fd, number)
        os.closerange(5, 64)
        _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
        confine(program)
    except BaseException as e:
        os.write(2, f"fork: {e}\n".encode())
        os._exit(1)
