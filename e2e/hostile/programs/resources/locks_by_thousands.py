# must: locks on parts of a file are bounded by memory, and end with their program
# status: succeeded
# stdout: locked [0-9]+
import fcntl

locked = 0
with open("locks", "w") as f:
    try:
        while locked < 20000:
            fcntl.lockf(f, fcntl.LOCK_EX, 1, 2 * locked)
            locked += 1
    except OSError:
        pass
print("locked", locked)
