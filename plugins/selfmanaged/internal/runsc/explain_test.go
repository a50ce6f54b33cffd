package runsc

import (
	"testing"

	"gotest.tools/v3/assert"
	"gotest.tools/v3/fs"
)

// This test is inside the package: which settings a kernel has cannot be chosen.

func TestTheRemedyNamesTheSettingThatForbidsNamespaces(t *testing.T) {
	cases := map[string]struct {
		user, kernel []fs.PathOp
		want         string
	}{
		"none of them":      {[]fs.PathOp{fs.WithFile("max_user_namespaces", "96365\n")}, []fs.PathOp{fs.WithFile("apparmor_restrict_unprivileged_userns", "0\n")}, "allow them (in a container: in its seccomp profile)"},
		"no such settings":  {nil, nil, "allow them (in a container: in its seccomp profile)"},
		"the number":        {[]fs.PathOp{fs.WithFile("max_user_namespaces", "0\n")}, nil, "sysctl user.max_user_namespaces=10000"},
		"that of Debian":    {nil, []fs.PathOp{fs.WithFile("unprivileged_userns_clone", "0\n")}, "sysctl kernel.unprivileged_userns_clone=1"},
		"that of Ubuntu":    {nil, []fs.PathOp{fs.WithFile("apparmor_restrict_unprivileged_userns", "1\n")}, "sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
		"two of the three":  {[]fs.PathOp{fs.WithFile("max_user_namespaces", "0\n")}, []fs.PathOp{fs.WithFile("apparmor_restrict_unprivileged_userns", "1\n")}, "sysctl user.max_user_namespaces=10000, sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
		"something unheard": {nil, []fs.PathOp{fs.WithFile("apparmor_restrict_unprivileged_userns", "2\n")}, "allow them (in a container: in its seccomp profile)"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			dir := fs.NewDir(t, "sys", fs.WithDir("user", c.user...), fs.WithDir("kernel", c.kernel...))
			assert.Equal(t, allowNamespaces(dir.Path()), c.want)
		})
	}
}

// What the words of runsc are is tried with real ones in package provider.
func TestWhatRunscSaysIsExplainedWhereItIsKnown(t *testing.T) {
	const (
		namespace = "Error executing inside namespace: re-executing self: fork/exec /proc/self/exe: operation not permitted\n"
		started   = "running container: creating container: cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF\n"
	)
	cases := map[string]struct {
		r      Runtime
		stderr string
		known  bool
	}{
		"a namespace for an ordinary user": {Runtime{rootless: true}, namespace, true},
		"a namespace for root":             {Runtime{}, namespace, false},
		"a start with kvm":                 {Runtime{platform: "kvm"}, started, true},
		"a start with systrap":             {Runtime{platform: "systrap"}, started, false},
		"nothing":                          {Runtime{rootless: true, platform: "kvm"}, "", false},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.r.Explain(c.stderr) != "", c.known) })
	}
}
