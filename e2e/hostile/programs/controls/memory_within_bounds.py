# must: memory below the limit is to be had
# status: succeeded
# stdout: 150
x = bytearray(b"x") * (150 << 20)
print(len(x) >> 20)
