package agent

import (
	"crypto/subtle"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// envd has the processes and files of the sandbox.
type envd struct {
	config    Config
	mu        sync.Mutex
	processes map[int]*process
}

// since reports whether the version is that one, or a later one.
func (e *envd) since(version ...int) bool {
	for i, part := range strings.Split(e.config.Version, ".") {
		if number, err := strconv.Atoi(part); err == nil && number != version[i] {
			return number > version[i]
		}
	}
	return true
}

// internal routes are not for those outside.
var internal = []string{"/init", "/freeze", "/unfreeze", "/collapse", "/keep", "/fsfreeze", "/fsthaw"}

// IsInternal reports whether the proxy keeps a path of envd from the outside.
func IsInternal(path string) bool {
	for _, p := range internal {
		if path == p {
			return true
		}
	}
	return false
}

func newEnvd(c Config) *envd { return &envd{config: c, processes: map[int]*process{}} }

// handler serves envd; i is nil where there is no code interpreter.
func (e *envd) handler(i *interpreter) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /health", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) })
	mux.HandleFunc("GET /metrics", e.metrics)
	mux.HandleFunc("GET /envs", func(w http.ResponseWriter, _ *http.Request) { writeJSON(w, 200, e.config.Env) })
	mux.HandleFunc("GET /files", e.download)
	mux.HandleFunc("POST /files", e.upload)
	mux.HandleFunc("POST /init", e.initialize)
	mux.HandleFunc("POST /keep", e.keep(i))
	mux.HandleFunc("POST /freeze", frozen(syscall.SIGSTOP))
	mux.HandleFunc("POST /unfreeze", frozen(syscall.SIGCONT))
	mux.HandleFunc("POST /process.Process/List", unary("ListRequest", e.list))
	mux.HandleFunc("POST /process.Process/Start", serverStream("StartRequest", e.start))
	mux.HandleFunc("POST /process.Process/Connect", serverStream("ConnectRequest", e.connect))
	mux.HandleFunc("POST /process.Process/Update", unary("UpdateRequest", e.update))
	mux.HandleFunc("POST /process.Process/SendInput", unary("SendInputRequest", e.sendInput))
	mux.HandleFunc("POST /process.Process/SendSignal", unary("SendSignalRequest", e.sendSignal))
	if e.since(0, 5, 2) {
		mux.HandleFunc("POST /process.Process/CloseStdin", unary("CloseStdinRequest", e.closeStdin))
	}
	mux.HandleFunc("POST /filesystem.Filesystem/Stat", unary("PathRequest", e.stat))
	mux.HandleFunc("POST /filesystem.Filesystem/ListDir", unary("ListDirRequest", e.listDir))
	mux.HandleFunc("POST /filesystem.Filesystem/Move", unary("MoveRequest", e.move))
	mux.HandleFunc("POST /filesystem.Filesystem/MakeDir", unary("PathRequest", e.makeDir))
	mux.HandleFunc("POST /filesystem.Filesystem/Remove", unary("PathRequest", e.remove))
	mux.HandleFunc("POST /filesystem.Filesystem/WatchDir", serverStream("WatchDirRequest", e.watchDir))
	return e.authorize(mux)
}

// authorize asks for the token. Health needs none, and the routes of the proxy come
// from the fake itself.
func (e *envd) authorize(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		given := r.Header.Get("X-Access-Token")
		if e.token() != "" && r.URL.Path != "/health" && !IsInternal(r.URL.Path) &&
			subtle.ConstantTimeCompare([]byte(given), []byte(e.token())) == 0 {
			writeError(w, http.StatusUnauthorized, "unauthorized access, please provide a valid access token")
			return
		}
		next.ServeHTTP(w, r)
	})
}

// initialize takes a new token.
func (e *envd) initialize(w http.ResponseWriter, r *http.Request) {
	token, err := io.ReadAll(r.Body)
	if err != nil {
		writeError(w, http.StatusBadRequest, err.Error())
		return
	}
	e.mu.Lock()
	e.config.Token = string(token)
	e.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
}

func (e *envd) token() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.config.Token
}

func frozen(signal syscall.Signal) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		if err := freeze(signal); err != nil {
			writeError(w, http.StatusInternalServerError, err.Error())
			return
		}
		w.WriteHeader(http.StatusNoContent)
	}
}

// user is who a call is for: the default one, or that of the header.
func (e *envd) user(r *http.Request) (string, error) {
	name, _, given := r.BasicAuth()
	return e.knownUser(name, given)
}

func (e *envd) knownUser(name string, given bool) (string, error) {
	switch {
	case !given && !e.since(0, 4, 0):
		return "", rpcErrorf("unauthenticated", "no user specified")
	case !given || name == "" || name == "user":
		return "user", nil
	case name == "root":
		return "root", nil
	default:
		return "", rpcErrorf("unauthenticated", "no user specified: "+name)
	}
}

func home(user string) string {
	if user == "root" {
		return "/root"
	}
	return "/home/user"
}

// environment of a process: envd's own PATH, the user, the global one, and last that
// of the request.
func (e *envd) environment(user string, own map[string]string) []string {
	all := map[string]string{"PATH": os.Getenv("PATH"), "HOME": home(user), "USER": user, "LOGNAME": user}
	maps.Copy(all, e.config.Env)
	maps.Copy(all, own)
	var list []string
	for name, value := range all {
		list = append(list, name+"="+value)
	}
	return list
}

func (e *envd) metrics(w http.ResponseWriter, _ *http.Request) {
	var memory syscall.Sysinfo_t
	var disk syscall.Statfs_t
	if err := syscall.Sysinfo(&memory); err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	if err := syscall.Statfs("/", &disk); err != nil {
		writeError(w, http.StatusInternalServerError, err.Error())
		return
	}
	writeJSON(w, 200, map[string]any{
		"ts": time.Now().Unix(), "cpu_count": runtime.NumCPU(), "cpu_used_pct": 1.5,
		"mem_total": memory.Totalram, "mem_used": memory.Totalram - memory.Freeram, "mem_cache": memory.Bufferram,
		"disk_total": disk.Blocks * uint64(disk.Bsize), "disk_used": (disk.Blocks - disk.Bfree) * uint64(disk.Bsize),
	})
}

func writeJSON(w http.ResponseWriter, status int, value any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(value)
}

func writeError(w http.ResponseWriter, status int, message string) {
	writeJSON(w, status, map[string]any{"code": status, "message": strings.TrimSpace(message)})
}
