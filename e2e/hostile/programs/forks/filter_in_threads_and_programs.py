# must: threads, children and programs of a fork are kept from making namespaces as it is
# status: succeeded
# stdout: thread EPERM\nchild EPERM\nprogram [1-9]\d*\nmode 2
import subprocess
import threading


def new():
    syscall("unshare", 0x10000000)


t = threading.Thread(target=attempt, args=("thread", new))
t.start()
t.join()
if os.fork() == 0:
    attempt("child", new)
    os._exit(0)
os.wait()
print("program", subprocess.run(["unshare", "-Ur", "true"], stderr=subprocess.DEVNULL).returncode)
print("mode", syscall("prctl", 21, 0, 0, 0, 0))
