# must: an exception for memory that was not taken is a failure like any other
# status: failed
# exit: 1
# stdout: ()
# stderr: (?s).*MemoryError
import resource

resource.setrlimit(resource.RLIMIT_AS, (256 << 20, 256 << 20))
x = bytearray(1 << 30)
