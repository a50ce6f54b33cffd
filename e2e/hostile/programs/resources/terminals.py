# must: terminals are bounded by the descriptors of their program
# status: succeeded
# stdout: made [0-9]+
import pty

made = []
try:
    while len(made) < 2000:
        made.append(pty.openpty())
except OSError:
    pass
print("made", len(made))
