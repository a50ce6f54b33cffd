# must: process 1 is not to be killed, stopped or interrupted
# status: succeeded
# stdout: (SIG[A-Z0-9]+ EPERM\n?)+
import signal

for number in signal.SIGKILL, signal.SIGSTOP, signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGSEGV, signal.SIGCHLD:
    attempt(number.name, os.kill, 1, number)
