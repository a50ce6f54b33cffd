# must: a large file of nothing is told by its size and not read
# status: succeeded
# stdout: 31457280
# artifacts: file "artifacts/holes" application/octet-stream is larger than 4194304 bytes
with open("artifacts/holes", "w") as f:
    f.truncate(30 << 20)
print(os.path.getsize("artifacts/holes"))
