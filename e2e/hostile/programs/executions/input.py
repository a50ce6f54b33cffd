# must: nothing is left in standard input, which is empty
# status: succeeded
# stdout: ''
print(repr(sys.stdin.read()))
# --- next execution
# status: succeeded
# stdout: ''
print(repr(sys.stdin.read()))
