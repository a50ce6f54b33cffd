# must: programs called by what is no text are listed, and end
# status: succeeded
# stdout: 0
import subprocess

print(subprocess.run([b"/bin/sh", b"-c", b"exit 0", b"\xb1\xa8"], env={b"\xb1": b"\xa8"}).returncode)
