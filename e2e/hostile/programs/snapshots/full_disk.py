# must: a full disk is as full in a copy, and what is removed there is removed there alone
# status: succeeded
# stdout: full
with open("/workspace/fill", "wb", buffering=0) as f:
    try:
        while f.write(b"x" * (1 << 16)):
            pass
    except OSError:
        pass
print("full")
# --- in a copy
# status: succeeded
# stdout: True ENOSPC True
size = os.path.getsize("/workspace/fill")
try:
    open("/workspace/more", "wb", buffering=0).write(b"x" * (1 << 20))
    said = "SUCCEEDED"
except OSError as e:
    said = errno.errorcode[e.errno]
os.remove("/workspace/fill")
print(size > 8 << 20, said, open("/workspace/more", "wb", buffering=0).write(b"x" * (1 << 20)) == 1 << 20)
# --- next execution
# status: succeeded
# stdout: True
print(os.path.getsize("/workspace/fill") > 8 << 20)
