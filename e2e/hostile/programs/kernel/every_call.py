# must: every system call with arguments of no sense ends in an answer, and the sandbox lives on
# status: succeeded
# stdout: called 460\nalive
import ctypes
import random
import signal

# Those that end, stop or replace the process, or only wait.
skipped = {15, 22, 23, 34, 35, 56, 57, 58, 59, 60, 61, 62, 109, 112, 128, 130, 200, 202, 230, 231, 232, 234, 247, 270, 271, 281, 297, 322, 424, 435, 441, 449}
generator = random.Random(4711)
called = 0
libc = ctypes.CDLL(None)
memory = ctypes.create_string_buffer(1 << 12)
for begin in range(0, 460, 10):
    pid = os.fork()
    if pid == 0:
        signal.alarm(1)  # for one that waits after all
        null = os.open("/dev/null", os.O_RDWR)
        for fd in 0, 1, 2:
            os.dup2(null, fd)
        for number in range(begin, begin + 10):
            if number in skipped or os.uname().machine != "x86_64":
                continue
            for _ in range(4):
                choices = 0, -1, 3, 1 << 31, 1 << 63, ctypes.addressof(memory), 4096
                libc.syscall(ctypes.c_long(number), *(ctypes.c_ulong(generator.choice(choices) & (1 << 64) - 1) for _ in range(6)))
        os._exit(0)
    os.waitpid(pid, 0)
    called += 10
print("called", called)
print("alive")
