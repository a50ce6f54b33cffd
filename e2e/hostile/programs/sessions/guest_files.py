# must: what a session made of the guest's files is of no effect on another
# status: succeeded
# stdout: tried (EACCES|EROFS) (EACCES|EROFS)
outcomes = []
for path in "/run/sandbox/runner.py", "/opt/sandbox/guest":
    try:
        os.close(os.open(path, os.O_WRONLY))
        outcomes.append("OPENED")
    except OSError as e:
        outcomes.append(errno.errorcode[e.errno].replace("ETXTBSY", "EROFS"))
print("tried", *outcomes)
# --- another session
# status: succeeded
# stdout: ()
# result: "ran"
def main():
    return "ran"
