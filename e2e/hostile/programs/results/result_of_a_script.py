# must: a script calls nothing, so it has no result, whatever was written for one
# status: succeeded
# stdout: ran
os.write(4, b'{"kind": "value", "length": 16}\n{"forged": true}')
print("ran")
