# must: memory that one execution used counts for it alone: the next has all of it
# status: succeeded
# stdout: used
x = bytearray(b"x") * (150 << 20)
print("used")
# --- next execution
# status: succeeded
# stdout: used
x = bytearray(b"x") * (150 << 20)
print("used")
