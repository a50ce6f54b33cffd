# must: no limit can be lifted, no real-time class be had; niceness is a number of gVisor's own
# status: succeeded
# stdout: nice (EPERM|EACCES|SUCCEEDED)\nrealtime (EPERM|ENOSYS|EINVAL)\nfiles ValueError\nprocesses ValueError\nsize ValueError\nlimits 1024 64 True\ninit EPERM
import resource

attempt("nice", os.setpriority, os.PRIO_PROCESS, 0, -20)
attempt("realtime", os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))
for name, limit in ("files", resource.RLIMIT_NOFILE), ("processes", resource.RLIMIT_NPROC), ("size", resource.RLIMIT_FSIZE):
    attempt(name, resource.setrlimit, limit, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
print("limits", *(resource.getrlimit(n)[1] for n in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC)), resource.getrlimit(resource.RLIMIT_FSIZE)[1] == 32 << 20)
attempt("init", resource.prlimit, 1, resource.RLIMIT_NOFILE, (0, 0))
