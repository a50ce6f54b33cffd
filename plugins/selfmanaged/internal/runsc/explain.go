package runsc

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/internal/tail"
)

// Explain looks in what runsc said before it ended for a reason why no sandbox
// can be made on this machine, and answers it in one sentence with the remedy,
// without paths of the host; "" if there is none that it knows.
func (r *Runtime) Explain(stderr string) string {
	last := tail.LastWords(stderr)
	switch {
	case r.rootless && strings.Contains(last, "namespace") && strings.Contains(last, "/proc/self/exe"):
		return "this machine does not let the broker's user make user namespaces, which gVisor needs where it is not root: " + allowNamespaces("/proc/sys") + ", or run the broker as root"
	case strings.Contains(last, "too many open files"):
		return "runsc may not open as many files as it needs: raise the limit (LimitNOFILE= in the unit of the service, or ulimit -Hn)"
	case r.platform == "kvm" && strings.Contains(last, "waiting for sandbox to start"):
		// What exactly ails it, runsc keeps to itself.
		return `the gVisor platform kvm does not work on this machine, where it is perhaps a virtual one itself: use platform = "systrap"`
	default:
		return ""
	}
}

// allowNamespaces names the settings of the kernel that forbid user namespaces.
func allowNamespaces(dir string) string {
	var set []string
	for _, s := range []struct{ name, forbids, remedy string }{
		{"user.max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
		{"kernel.unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"kernel.apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		text, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(s.name, ".", "/")))
		if err == nil && strings.TrimSpace(string(text)) == s.forbids {
			set = append(set, s.remedy)
		}
	}
	if len(set) == 0 {
		return "allow them (in a container: in its seccomp profile)"
	}
	return strings.Join(set, ", ")
}
