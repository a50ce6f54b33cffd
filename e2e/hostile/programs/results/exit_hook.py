# must: a hook at the end has its say on the exit code, not on the result of a failure
# status: failed
# exit: 9
# stdout: hook
# stderr: (?s).*ValueError: mine
# arguments: {}
import atexit


def hook():
    print("hook")
    os.write(4, b'{"kind": "value", "length": 16}\n{"forged": true}')
    os._exit(9)


def main():
    atexit.register(hook)
    raise ValueError("mine")
