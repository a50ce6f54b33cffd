package provider

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// hostVariable makes this test's binary configure a provider on a host that was
// changed as the variable, a host in JSON, says.
const hostVariable = "SELFMANAGED_TEST_HOST"

// cannotChange is how that process ends where it may not change the host.
const cannotChange = 42

// host is a machine on which something is amiss. The changes are real; they hold
// for the process that makes them.
type host struct {
	Settings map[string]any
	StateDir string

	// User is who runs the provider, instead of root.
	User int
	// NoNamespaces forbids user namespaces.
	NoNamespaces bool
	// OpenFiles is the limit on them; 0 leaves it as it is.
	OpenFiles uint64
	// Cgroups is "read-only", "absent", "without controllers", or "" for what
	// this machine has.
	Cgroups string
}

// answer is what became of Configure.
type answer struct {
	Error    string
	Code     sdk.Code
	Weakness string
}

// configureOnHost is the other process.
func configureOnHost(text string) {
	var h host
	err := json.Unmarshal([]byte(text), &h)
	if err == nil {
		err = h.change()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "the host cannot be changed:", err)
		os.Exit(cannotChange)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 4*time.Minute)
	defer cancel()
	p := New(hclog.New(&hclog.LoggerOptions{Output: os.Stderr})).(*Provider)
	settings, _ := p.Describe().Schema.Resolve(h.Settings)
	err = p.Configure(ctx, sdk.ConfigureRequest{Label: "x", BrokerID: "test" + newID(), StateDir: h.StateDir, Settings: settings})
	var a answer
	if err != nil {
		a = answer{Error: err.Error(), Code: sdk.CodeOf(err)}
	} else {
		a = answer{Weakness: p.runtime.Weakness()}
		if err := p.Close(ctx); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(a)
}

func (h host) change() error {
	const cgroups = "/sys/fs/cgroup"
	if h.Cgroups != "" {
		if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
			return fmt.Errorf("keep mounts private: %w", err)
		}
	}
	switch h.Cgroups {
	case "read-only":
		mounts, err := filepath.Glob(cgroups + "/*")
		if err != nil {
			return err
		}
		for _, dir := range append(mounts, cgroups) {
			err := unix.Mount("", dir, "", unix.MS_REMOUNT|unix.MS_BIND|unix.MS_RDONLY, "")
			if err != nil && !errors.Is(err, unix.EINVAL) { // which is no mount
				return fmt.Errorf("mount %s read-only: %w", dir, err)
			}
		}
	case "absent":
		if err := unix.Mount("none", cgroups, "tmpfs", 0, ""); err != nil {
			return fmt.Errorf("hide the cgroups: %w", err)
		}
	case "without controllers":
		if err := unix.Mount(cgroups+"/unified", cgroups, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show cgroups of version 2: %w", err)
		}
	}
	if h.NoNamespaces {
		if err := os.WriteFile("/proc/sys/user/max_user_namespaces", []byte("0"), 0o644); err != nil {
			return err
		}
	}
	if h.OpenFiles > 0 {
		if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: h.OpenFiles, Max: h.OpenFiles}); err != nil {
			return fmt.Errorf("lower the limit: %w", err)
		}
	}
	if h.User != 0 {
		return errors.Join(syscall.Setgroups(nil), syscall.Setgid(h.User), syscall.Setuid(h.User))
	}
	return nil
}

// configure asks the provider on the host.
func (h host) configure(t *testing.T, through ...string) answer {
	t.Helper()
	if os.Geteuid() != 0 && (h.User != 0 || h.Cgroups != "" || len(through) > 0) {
		t.Skip("only root can change the host so")
	}
	dir, err := os.MkdirTemp("", "host") //nolint:usetesting // it belongs to another user
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	h.StateDir = dir
	assert.NilError(t, os.Chmod(dir, 0o755))
	if h.User != 0 {
		// The repository may be where that user cannot look.
		for _, setting := range []string{"runsc", "guest"} {
			copied := filepath.Join(dir, setting)
			copyProgram(t, h.Settings[setting].(string), copied)
			h.Settings[setting] = copied
		}
		// What it keeps lies beside the directory of this process.
		h.StateDir = filepath.Join(dir, "provider", "1")
		assert.NilError(t, os.MkdirAll(h.StateDir, 0o700))
		assert.NilError(t, errors.Join(os.Chown(filepath.Dir(h.StateDir), h.User, h.User), os.Chown(h.StateDir, h.User, h.User)))
	}
	text, err := json.Marshal(h)
	assert.NilError(t, err)
	self, err := os.Executable()
	assert.NilError(t, err)
	line := append(through, self)
	cmd := exec.CommandContext(t.Context(), line[0], line[1:]...)
	cmd.Env = append(os.Environ(), hostVariable+"="+string(text))
	var out, log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &log
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if h.Cgroups != "" {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWNS
	}
	if h.NoNamespaces {
		all := []syscall.SysProcIDMap{{ContainerID: 0, HostID: 0, Size: 65536}}
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings, cmd.SysProcAttr.GidMappings = all, all
		cmd.SysProcAttr.GidMappingsEnableSetgroups = true
	}
	err = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code == cannotChange || errors.Is(err, fs.ErrPermission) {
		t.Skipf("this machine does not let itself be changed so: %v\n%s", err, log.String())
	}
	assert.NilError(t, err, log.String())
	var a answer
	assert.NilError(t, json.Unmarshal(out.Bytes(), &a), "%s%s", out.String(), log.String())
	return a
}

func copyProgram(t *testing.T, from, to string) {
	t.Helper()
	in, err := os.Open(from)
	assert.NilError(t, err)
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_EXCL, 0o755)
	assert.NilError(t, err)
	_, err = io.Copy(out, in)
	assert.NilError(t, errors.Join(err, out.Close()))
}

// script is a program that stands for runsc.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "runsc")
	assert.NilError(t, os.WriteFile(path, []byte(text), 0o755))
	return path
}

// withMode copies a program to where file and directory have these modes.
func withMode(t *testing.T, program string, file, directory os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "program")
	copyProgram(t, program, path)
	assert.NilError(t, errors.Join(os.Chmod(path, file), os.Chmod(dir, directory)))
	return path
}

// rootfsWithMode is a root file system whose directory, and the one with the programs
// in it, have these modes.
func rootfsWithMode(t *testing.T, directory, programs os.FileMode) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "usr", "bin")
	assert.NilError(t, os.MkdirAll(bin, 0o755))
	assert.NilError(t, errors.Join(os.Chmod(dir, directory), os.Chmod(bin, programs)))
	return dir
}

// forAnother is the head of a program for another processor than any of ours.
func forAnother(t *testing.T) string {
	t.Helper()
	var b bytes.Buffer
	assert.NilError(t, binary.Write(&b, binary.LittleEndian, elf.Header64{
		Ident: [16]byte{0x7f, 'E', 'L', 'F', byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), byte(elf.EV_CURRENT)},
		Type:  uint16(elf.ET_EXEC), Machine: uint16(elf.EM_RISCV), Version: uint32(elf.EV_CURRENT), Ehsize: 64, Shentsize: 64,
	}))
	return script(t, b.String())
}

func TestAHostWhereNoSandboxCanBeMadeSaysWhy(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	assert.NilError(t, os.WriteFile(plain, []byte("x"), 0o644))
	dynamic, err := exec.LookPath("ls")
	assert.NilError(t, err)
	onlyBash := filepath.Join(dir, "onlybash")
	assert.NilError(t, os.MkdirAll(filepath.Join(onlyBash, "usr", "bin"), 0o755))
	// A runsc that starts no sandbox; what it says was said by a real one.
	failing := func(words string) string {
		return "#!/bin/sh\n[ \"$1\" = --version ] && { echo runsc version test; exit; }\necho '" + words + "' >&2\nexit 128\n"
	}
	real, guest := binaries.Runsc(t), filepath.Join(binaries.Dir(t), "sandbox-guest")
	type settings = map[string]any
	cases := map[string]struct {
		host    host
		through []string
		want    string
	}{
		"runsc is not there":                {host{Settings: settings{"runsc": "/nonexistent/runsc"}}, nil, "there is no /nonexistent/runsc: install gVisor there, or correct the setting `runsc`"},
		"runsc is a directory":              {host{Settings: settings{"runsc": dir}}, nil, "is a directory: name the file in it with the setting `runsc`"},
		"runsc is not executable":           {host{Settings: settings{"runsc": plain}}, nil, plain + " is not executable: chmod a+rx it"},
		"runsc is a dynamic build":          {host{Settings: settings{"runsc": dynamic}}, nil, "is dynamically linked and would fail inside its own chroot: use an official release, or build it with CGO_ENABLED=0"},
		"runsc is for another processor":    {host{Settings: settings{"runsc": forAnother(t)}}, nil, "is built for another processor (EM_RISCV)"},
		"runsc is no program at all":        {host{Settings: settings{"runsc": script(t, "what?")}}, nil, "is not a program that this machine can run: install an official release of gVisor"},
		"runsc is a script for nobody":      {host{Settings: settings{"runsc": script(t, "#!/nonexistent/sh\n")}}, nil, "is not a program that this machine can run"},
		"runsc does not say its version":    {host{Settings: settings{"runsc": script(t, "#!/bin/sh\necho one >&2\necho 'flag provided but not defined' >&2\nexit 2\n")}}, nil, `does not even say its version (exit status 2: "flag provided but not defined"): install an official release`},
		"runsc may open too few files":      {host{Settings: settings{"runsc": script(t, failing("running container: creating container: cannot create gofer process: too many open files"))}}, nil, "runsc may not open as many files as it needs: raise the limit (LimitNOFILE= in the unit of the service, or ulimit -Hn)"},
		"the platform kvm does not work":    {host{Settings: settings{"platform": "kvm", "runsc": script(t, failing("running container: creating container: cannot create sandbox: cannot read client sync file: waiting for sandbox to start: EOF"))}}, nil, `platform = "systrap"`},
		"the guest is not there":            {host{Settings: settings{"guest": "/nonexistent/guest"}}, nil, "there is no executable sandbox-guest at /nonexistent/guest: install it there, or name it with the setting guest"},
		"the root file system is none":      {host{Settings: settings{"rootfs": dir}}, nil, "there is no root file system at " + dir + ": make one with `make rootfs`"},
		"the root file system has no shell": {host{Settings: settings{"rootfs": onlyBash}}, nil, "there is no python3, node or bash in " + onlyBash + " for the sandboxes to use: install them there"},
		"anybody may change runsc":          {host{Settings: settings{"runsc": withMode(t, real, 0o757, 0o755)}}, nil, "runsc may be changed by others: "},
		"anybody may put another runsc":     {host{Settings: settings{"runsc": withMode(t, real, 0o755, 0o777)}}, nil, "everybody may write it (chmod o-w)"},
		"anybody may change the guest":      {host{Settings: settings{"guest": withMode(t, guest, 0o757, 0o755)}}, nil, "sandbox-guest may be changed by others: "},
		"anybody may put another guest":     {host{Settings: settings{"guest": withMode(t, guest, 0o755, 0o777)}}, nil, "everybody may write it (chmod o-w)"},
		"anybody may change the system":     {host{Settings: settings{"rootfs": rootfsWithMode(t, 0o755, 0o777)}}, nil, "the root file system may be changed by others: "},
		"anybody may put another system":    {host{Settings: settings{"rootfs": rootfsWithMode(t, 0o777, 0o755)}}, nil, "everybody may write it (chmod o-w)"},
		"few open files are allowed":        {host{OpenFiles: 600}, nil, "is more than the 86 that at most 600 open files allow: lower it, or raise the limit (LimitNOFILE= in the unit of the service, or ulimit -Hn)"},
		"hardly any open files are allowed": {host{OpenFiles: 100}, nil, "no sandbox can be made with at most 100 open files: raise the limit"},
		"cgroups belong to root":            {host{User: 1000, Settings: settings{"cgroups": "required"}}, nil, "cgroups are required but cannot be used: the broker's user may not make cgroups: run the broker as root"},
		"cgroups are read-only":             {host{Cgroups: "read-only", Settings: settings{"cgroups": "required"}}, nil, "the cgroup file system is mounted read-only, as in most containers: mount it writable"},
		"cgroups are not mounted":           {host{Cgroups: "absent", Settings: settings{"cgroups": "required"}}, nil, "cgroups are required but cannot be used: the cgroup controller \"memory\" is not mounted at /sys/fs/cgroup/memory"},
		"cgroups lack controllers":          {host{Cgroups: "without controllers", Settings: settings{"cgroups": "required"}}, nil, "the cgroup controllers memory, cpu and pids are not all enabled on this machine"},
		"user namespaces are switched off":  {host{User: 1000, NoNamespaces: true}, nil, "this machine does not let the broker's user make user namespaces, which gVisor needs where it is not root: sysctl user.max_user_namespaces=10000, or run the broker as root"},
		"root is not allowed what runsc needs": {
			host{},
			[]string{"setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin", "--"},
			"root without CAP_SYS_ADMIN cannot run runsc; give the broker the capability, or run it as an ordinary user",
		},
		"the Docker Engine is not there": {host{Settings: settings{"runtime": "docker", "docker_host": "unix:///nonexistent/docker.sock"}}, nil, "the Docker Engine at unix:///nonexistent/docker.sock does not answer (Cannot connect to the Docker daemon at unix:///nonexistent/docker.sock): start it, or name its socket with the setting docker_host"},
		"the Docker Engine is not for us": {
			host{User: 1000, Settings: settings{"runtime": "docker", "docker_host": socketOfRoot(t)}},
			nil,
			"add the broker's user to the group that owns the socket",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			all := settings{"runsc": real, "guest": guest, "pool_size": 1}
			for key, value := range c.host.Settings {
				all[key] = value
			}
			c.host.Settings = all
			if c.host.Settings["platform"] == "kvm" {
				if _, err := os.Stat("/dev/kvm"); err != nil {
					c.want = "the gVisor platform kvm cannot be used"
				}
			}
			got := c.host.configure(t, c.through...)
			assert.Check(t, is.Contains(got.Error, c.want))
			want := sdk.CodeInvalidConfig
			if c.host.Settings["runtime"] == "docker" {
				want = sdk.CodeConnectionFailed
			}
			assert.Check(t, is.Equal(got.Code, want))
			assert.Check(t, !strings.Contains(got.Error, "\n"), "more than a sentence: %q", got.Error)
		})
	}
}

// socketOfRoot is a socket where somebody listens, but not for other users.
func socketOfRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "s") //nolint:usetesting // the path of a socket must be short
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, os.RemoveAll(dir)) })
	assert.NilError(t, os.Chmod(dir, 0o755))
	path := filepath.Join(dir, "s")
	listener, err := net.Listen("unix", path)
	assert.NilError(t, err)
	t.Cleanup(func() { assert.Check(t, listener.Close()) })
	assert.NilError(t, os.Chmod(path, 0o600))
	return "unix://" + path
}

func TestWithoutCgroupsTheReasonIsAWeakness(t *testing.T) {
	h := host{Cgroups: "absent", Settings: map[string]any{
		"runsc": binaries.Runsc(t), "guest": filepath.Join(binaries.Dir(t), "sandbox-guest"), "pool_size": 1,
	}}
	got := h.configure(t)
	assert.Check(t, is.Equal(got.Error, ""))
	assert.Check(t, is.Contains(got.Weakness, "no host limits on memory, CPU and processes of a sandbox: the cgroup controller"))
}

// What may pass by itself does not keep the provider from starting; who asks is
// told, without what only the operator may know.
func TestHealthSaysWhyNoSandboxCanBeMade(t *testing.T) {
	state := t.TempDir()
	p := New(hclog.NewNullLogger()).(*Provider)
	settings, problems := p.Describe().Schema.Resolve(map[string]any{
		"runsc": script(t, "#!/bin/sh\n[ \"$1\" = --version ] && exit\necho 'cannot open /secret/path: no space left on device' >&2\nexit 1\n"),
		"guest": filepath.Join(binaries.Dir(t), "sandbox-guest"), "pool_size": 1,
	})
	assert.Assert(t, is.Len(problems, 0))
	assert.NilError(t, p.Configure(t.Context(), sdk.ConfigureRequest{Label: "x", BrokerID: "test" + newID(), StateDir: state, Settings: settings}))
	defer func() { assert.Check(t, p.Close(t.Context())) }()
	health, err := p.Health(t.Context())
	assert.NilError(t, err)
	assert.Check(t, !health.Healthy)
	assert.Check(t, is.Contains(health.Reason, "sandboxes cannot be made"))
	assert.Check(t, !strings.Contains(health.Reason, "/secret/path"), health.Reason)
	assert.Check(t, is.ErrorContains(p.pool.Stats().Failure, "the sandbox said: cannot open /secret/path: no space left on device"))
}
