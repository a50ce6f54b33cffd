package e2bfake

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/agent"
	"github.com/sandbox-broker/sandbox-broker/plugins/internal/jail"
)

// sandbox is one that runs or is paused.
type sandbox struct {
	id, template string
	envdVersion  string
	// alias is that of the template; interpreter says whether it has the code interpreter.
	alias       string
	interpreter bool
	metadata    map[string]string
	startedAt   time.Time
	jail        *jail.Jail
	dir         string
	transports  map[string]*http.Transport // by socket
	// unlisted is guarded by the server.
	unlisted int

	mu           sync.Mutex
	token        string
	trafficToken string
	endAt        time.Time
	expiry       *time.Timer
	paused       bool
	starting     bool
	keeping      bool
	kills        int
	endOnce      sync.Once
}

func newID() string { return "i" + strings.ToLower(rand.Text())[:20] }

// launch starts the sandbox and returns when envd listens.
func (s *Server) launch(sb *sandbox, config agent.Config, from *build) error {
	sb.dir = s.socketDir(sb.id)
	if err := os.Mkdir(sb.dir, 0o755); err != nil {
		return err
	}
	if err := sb.setKills(0); err != nil {
		return err
	}
	if from != nil {
		config.Kept = &from.kept
		if err := os.Link(from.files, filepath.Join(sb.dir, agent.FilesKept)); err != nil {
			return err
		}
	}
	executable, err := os.Executable()
	if err != nil {
		return err
	}
	config.Dir = "/run/e2bfake"
	sb.jail, err = jail.Start(sb.dir, config,
		"--unshare-user", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--uid", "1000", "--gid", "1000",
		"--die-with-parent", "--new-session", "--clearenv",
		"--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--ro-bind-try", "/etc/alternatives", "/etc/alternatives", "--ro-bind-try", "/etc/ld.so.cache", "/etc/ld.so.cache",
		"--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp", "--dir", "/home/user", "--dir", "/root",
		"--bind", sb.dir, config.Dir, "--ro-bind", executable, "/run/agent",
		"--ro-bind", sb.vmstat(), "/proc/vmstat",
		"--setenv", "PATH", "/usr/local/bin:/usr/bin:/bin", "--setenv", agent.Variable, "true", "--chdir", "/home/user",
		"/run/agent")
	if err != nil {
		return err
	}
	sb.transports = map[string]*http.Transport{}
	for _, socket := range []string{agent.EnvdSocket, agent.InterpreterSocket} {
		sb.transports[socket] = sb.jail.Transport(func(ctx context.Context) (net.Conn, error) { return sb.jail.Dial(ctx, socket) })
	}
	return nil
}

// vmstat is what the sandbox has as /proc/vmstat.
func (sb *sandbox) vmstat() string { return filepath.Join(sb.dir, "vmstat") }

// setKills says how many processes were killed for memory.
func (sb *sandbox) setKills(kills int) error {
	sb.kills = kills
	return os.WriteFile(sb.vmstat(), fmt.Appendf(nil, "nr_free_pages 1000\noom_kill %d\n", kills), 0o644)
}

// end kills the sandbox and waits until it is gone.
func (sb *sandbox) end() {
	sb.endOnce.Do(func() {
		sb.mu.Lock()
		if sb.expiry != nil {
			sb.expiry.Stop()
		}
		sb.mu.Unlock()
		sb.jail.End()
		_ = os.RemoveAll(sb.dir)
	})
}

// lives gives the sandbox so long from now on, then calls over.
func (sb *sandbox) lives(d time.Duration, over func()) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	if sb.expiry != nil {
		sb.expiry.Stop()
	}
	sb.endAt = time.Now().Add(d)
	sb.expiry = time.AfterFunc(d, over)
}

// ask makes a call of the agent that nobody outside can make.
func (sb *sandbox) ask(ctx context.Context, path string, body io.Reader) error {
	return sb.call(ctx, path, body, http.StatusNoContent, nil)
}

// askFor is ask for a call that has an answer.
func (sb *sandbox) askFor(ctx context.Context, path string, into any) error {
	return sb.call(ctx, path, nil, http.StatusOK, into)
}

func (sb *sandbox) call(ctx context.Context, path string, body io.Reader, status int, into any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://agent"+path, body)
	if err != nil {
		return err
	}
	resp, err := sb.transports[agent.EnvdSocket].RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != status {
		said, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<10))
		return fmt.Errorf("%s: %s", resp.Status, said)
	}
	if into == nil {
		return nil
	}
	return json.NewDecoder(resp.Body).Decode(into)
}

func (sb *sandbox) replaceToken(ctx context.Context) error {
	token := newToken()
	if err := sb.ask(ctx, "/init", strings.NewReader(token)); err != nil {
		return err
	}
	sb.mu.Lock()
	defer sb.mu.Unlock()
	sb.token = token
	return nil
}

func newToken() string { return "tok_" + strings.ToLower(rand.Text()) }

// reach is the way to a socket of the sandbox, through HTTP. Whatever goes wrong on it
// before the first byte looks like a port at which nothing listens.
func (sb *sandbox) reach(socket string, port int) http.Handler {
	proxy := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(&url.URL{Scheme: "http", Host: "sandbox"})
		},
		Transport:     sb.transports[socket],
		FlushInterval: -1,
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, _ error) {
			refuse(w, http.StatusBadGateway, map[string]any{"sandboxId": sb.id, "message": "The sandbox is running but port is not open", "port": port})
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Else net/http closes the body of the request when the answer begins, and the transport,
		// which may be about to find the end of that body, takes it for broken: golang.org/issue/40747.
		_ = http.NewResponseController(w).EnableFullDuplex()
		proxy.ServeHTTP(w, r)
	})
}
