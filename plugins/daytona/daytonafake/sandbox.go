package daytonafake

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake/toolbox"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/jail"
)

// The states that sandboxes stay in.
const (
	stateStarted   = "started"
	stateStopped   = "stopped"
	statePaused    = "paused"
	stateArchived  = "archived"
	stateDestroyed = "destroyed"
	stateError     = "error"
)

const (
	containerClass = "container"
	user           = "daytona"
	home           = "/home/" + user
	version        = "0.190.0"
	newVersion     = "0.205.1"
)

// sandbox is one of them. What is in the first part does not change; operation keeps
// changes of what runs apart from each other, and all else is guarded by the server.
type sandbox struct {
	id, name, root          string
	snapshot, dockerfile    string
	target, userName, token string
	env                     map[string]string
	created                 time.Time
	number                  int

	operation sync.Mutex

	jail        *jail.Jail // nil where nothing runs
	api         *http.Transport
	state       string
	way         []step
	reason      string
	recoverable bool
	labels      map[string]string
	public      bool
	network     network
	size        size
	// Minutes. Of autoDelete -1 is never and 0 at once, of the others 0 is never.
	autoStop, autoPause, autoArchive, autoDelete, ttl int
	active, changed                                   time.Time
	unlisted, kills                                   int
}

// size is in CPUs and GiB.
type size struct {
	CPU    int `json:"cpu"`
	Memory int `json:"memory"`
	Disk   int `json:"disk"`
}

type network struct {
	NetworkBlockAll  bool   `json:"networkBlockAll"`
	NetworkAllowList string `json:"networkAllowList"`
	DomainAllowList  string `json:"domainAllowList"`
}

// prepare makes the files of a sandbox.
func (sb *sandbox) prepare(o Options) error {
	var err error
	for _, dir := range []string{
		"run/daytonafake", "proc", "dev", "usr", "etc/alternatives", "sys/fs/cgroup", "opt/bin", "root", "var", home,
	} {
		err = errors.Join(err, os.MkdirAll(filepath.Join(sb.root, dir), 0o755))
	}
	err = errors.Join(err, os.Mkdir(filepath.Join(sb.root, "tmp"), 0o777), os.Chmod(filepath.Join(sb.root, "tmp"), fs.ModeSticky|0o777))
	for link, to := range map[string]string{"bin": "usr/bin", "sbin": "usr/sbin", "lib": "usr/lib", "lib64": "usr/lib64"} {
		err = errors.Join(err, os.Symlink(to, filepath.Join(sb.root, link)))
	}
	for name, text := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\n" + user + ":x:1000:1000::" + home + ":/bin/bash\n",
		"etc/group":  "root:x:0:\n" + user + ":x:1000:\n",
		"etc/hosts":  "127.0.0.1 localhost\n",
		"run/agent":  "", "etc/ld.so.cache": "",
	} {
		err = errors.Join(err, os.WriteFile(filepath.Join(sb.root, name), []byte(text), 0o644))
	}
	if err = errors.Join(err, sb.tellKills()); err != nil || !o.User {
		return err
	}
	sudo := "#!/bin/sh\necho 'sudo: a password is required' >&2; exit 1\n"
	if o.Sudo {
		sudo = "#!/bin/sh\n[ \"$1\" = -n ] && shift\nchmod 0755 /; \"$@\"; status=$?; chmod 0555 /\nexit $status\n"
	}
	return errors.Join(os.WriteFile(filepath.Join(sb.root, "opt/bin/sudo"), []byte(sudo), 0o755), os.Chmod(sb.root, 0o555))
}

// tellKills says how many processes were killed for memory.
func (sb *sandbox) tellKills() error {
	return os.WriteFile(filepath.Join(sb.root, "sys/fs/cgroup/memory.events"), fmt.Appendf(nil, "low 0\nhigh 0\nmax 0\noom %d\noom_kill %d\n", sb.kills, sb.kills), 0o644)
}

// launch starts all that a sandbox has.
func (s *Server) launch(sb *sandbox) error {
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	sockets := filepath.Join(sb.root, "run/daytonafake")
	for _, socket := range []string{toolbox.APISocket, toolbox.PortsSocket} {
		if err := os.Remove(filepath.Join(sockets, socket)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	config := toolbox.Config{Dir: "/run/daytonafake", Home: home, Version: s.daemonVersion(), New: s.options.NewDaemon, Env: map[string]string{}}
	maps.Copy(config.Env, sb.env)
	config.Env["DAYTONA_SANDBOX_ID"] = sb.id
	j, err := jail.Start(sockets, config,
		"--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--uid", "1000", "--gid", "1000",
		"--die-with-parent", "--new-session", "--clearenv", "--bind", sb.root, "/", "--ro-bind", "/usr", "/usr",
		"--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
		"--proc", "/proc", "--dev", "/dev", "--ro-bind", executable, "/run/agent",
		"--ro-bind", filepath.Join(sb.root, "sys"), "/sys",
		"--setenv", "PATH", "/opt/bin:/usr/local/bin:/usr/bin:/bin", "--setenv", "HOME", home, "--setenv", "USER", user, "--setenv", "LANG", "C.UTF-8",
		"--setenv", toolbox.Variable, "true", "--chdir", home, "/run/agent")
	if err != nil {
		return err
	}
	api := j.Transport(func(ctx context.Context) (net.Conn, error) { return j.Dial(ctx, toolbox.APISocket) })
	s.mu.Lock()
	defer s.mu.Unlock()
	sb.jail, sb.api = j, api
	return nil
}

func (s *Server) daemonVersion() string {
	if s.options.NewDaemon {
		return newVersion
	}
	return version
}

// halt kills all that runs.
func (s *Server) halt(sb *sandbox) {
	s.mu.Lock()
	j := sb.jail
	sb.jail, sb.api = nil, nil
	s.mu.Unlock()
	if j != nil {
		j.End()
	}
}

// erase removes the files.
func (sb *sandbox) erase() error {
	if err := os.Chmod(sb.root, 0o755); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.RemoveAll(sb.root)
}

// tell has the inside connect to a port, freeze or thaw, and returns the connection.
func tell(ctx context.Context, j *jail.Jail, line string) (net.Conn, error) {
	conn, err := j.Dial(ctx, toolbox.PortsSocket)
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprintln(conn, line); err != nil {
		conn.Close()
		return nil, err
	}
	in := bufio.NewReader(conn)
	if said, err := in.ReadByte(); err != nil || said != toolbox.Yes {
		conn.Close()
		return nil, errors.New("nothing listens")
	}
	return buffered{conn, in}, nil
}

// buffered is a connection of which something was read already.
type buffered struct {
	net.Conn
	in *bufio.Reader
}

func (b buffered) Read(p []byte) (int, error) { return b.in.Read(p) }

// freeze stops the processes of a sandbox, or continues them.
func freeze(ctx context.Context, j *jail.Jail, line string) error {
	conn, err := tell(ctx, j, line)
	if err != nil {
		return err
	}
	return conn.Close()
}

// reach passes requests on, with their path below prefix, and answers by fail where
// nobody is there.
func reach(transport http.RoundTripper, prefix string, fail func(http.ResponseWriter)) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "localhost"})
			r.Out.Header.Del("Authorization")
		},
		Transport: transport, FlushInterval: -1, ErrorLog: log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { fail(w) },
	}
	return http.StripPrefix(prefix, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else net/http closes the body of the request when the answer begins, and the transport,
		// which may be about to find the end of that body, takes it for broken: golang.org/issue/40747.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	}))
}
