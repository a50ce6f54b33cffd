# must: pipes and sockets among the artifacts hold up no answer
# status: succeeded
# stdout: made
# artifacts: file "artifacts/last" text/plain
import socket

os.mkfifo("artifacts/fifo")
socket.socket(socket.AF_UNIX).bind("artifacts/socket")
open("artifacts/last", "w").write("1")
print("made")
