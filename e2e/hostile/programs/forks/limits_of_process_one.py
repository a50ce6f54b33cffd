# must: no limit, priority or processor of process 1 can be set
# status: succeeded
# stdout: prlimit EPERM\nnice (EPERM|EACCES)\naffinity (EPERM|EACCES)\nscheduler (EPERM|EACCES|EINVAL)\ngroup (EPERM|ESRCH|EACCES)\ncompare (EPERM|ENOSYS)
import resource

attempt("prlimit", resource.prlimit, 1, resource.RLIMIT_NOFILE, (8, 8))
attempt("nice", os.setpriority, os.PRIO_PROCESS, 1, 19)
attempt("affinity", os.sched_setaffinity, 1, {0})
attempt("scheduler", os.sched_setscheduler, 1, os.SCHED_IDLE, os.sched_param(0))
attempt("group", os.setpgid, 1, 1)
attempt("compare", syscall, "kcmp", 1, os.getpid(), 2, 0, 0)
