// Package toolbox is what runs inside a sandbox of the fake: the daemon that has its
// commands, sessions, terminals, interpreters and files, on a Unix socket, and a way to
// its ports and to its freezing on another.
//
// It behaves as the daemon of v0.190.0 was seen to, inconvenient parts included: commands
// are the standard input of a shell, both streams come as one, a session whose shell ends
// leaves its caller waiting. Where the daemon ignores what it does not know, this one
// refuses it. Package daytonafake starts it and stands in front of it; it has no faults of
// its own to inject.
package toolbox

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// Variable of the environment that makes a program a toolbox. Its Config comes as JSON on
// standard input.
const Variable = "DAYTONAFAKE_TOOLBOX"

// The sockets in Config.Dir. On PortsSocket a line with a number connects to that port,
// Freeze stops all processes, and Thaw continues them. The answer begins with Yes or No.
const (
	APISocket   = "toolbox"
	PortsSocket = "ports"

	Freeze = "freeze"
	Thaw   = "thaw"

	Yes = '+'
	No  = '-'
)

// Config is what a sandbox is made with.
type Config struct {
	// Dir has the sockets.
	Dir string
	// Env is the environment of all that runs.
	Env map[string]string
	// Home is where it runs.
	Home string
	// Version is what it says it is.
	Version string
	// New says that it has what came after v0.190.0.
	New bool
}

// Main turns the process into a toolbox if the environment says so, and then does not
// return. A test binary that uses the fake calls it first in TestMain.
func Main() {
	if _, ok := os.LookupEnv(Variable); !ok {
		return
	}
	_ = os.Unsetenv(Variable)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "toolbox:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run serves until standard input ends, which it does with the fake.
func run() error {
	var c Config
	in := bufio.NewReader(os.Stdin)
	if err := json.NewDecoder(in).Decode(&c); err != nil {
		return err
	}
	for name, value := range c.Env {
		if err := os.Setenv(name, value); err != nil {
			return err
		}
	}
	d := &daemon{config: c}
	if err := d.contexts.put("", defaultContext, &interpreterContext{id: defaultContext, cwd: c.Home, created: time.Now()}); err != nil {
		return err
	}
	failed := make(chan error, 3)
	for name, serve := range map[string]func(net.Listener) error{
		APISocket:   func(l net.Listener) error { return http.Serve(l, d.routes()) },
		PortsSocket: servePorts,
	} {
		listener, err := net.Listen("unix", filepath.Join(c.Dir, name))
		if err != nil {
			return err
		}
		go func() { failed <- serve(listener) }()
	}
	if _, err := fmt.Println("ready"); err != nil {
		return err
	}
	go func() {
		_, err := io.Copy(io.Discard, os.Stdin)
		failed <- err
	}()
	return <-failed
}

// servePorts connects to ports, and freezes and thaws.
func servePorts(l net.Listener) error {
	for {
		conn, err := l.Accept()
		if err != nil {
			return err
		}
		go servePort(conn)
	}
}

func servePort(conn net.Conn) {
	defer conn.Close()
	in := bufio.NewReader(conn)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	line = strings.TrimSuffix(line, "\n")
	if line == Freeze || line == Thaw {
		signal := map[string]syscall.Signal{Freeze: syscall.SIGSTOP, Thaw: syscall.SIGCONT}[line]
		_ = syscall.Kill(-1, signal) // it reaches neither this process nor the first one, and there may be no other
		_, _ = conn.Write([]byte{Yes})
		return
	}
	port, err := net.Dial("tcp", net.JoinHostPort("localhost", line))
	if err != nil {
		_, _ = conn.Write([]byte{No})
		return
	}
	defer port.Close()
	if _, err := conn.Write([]byte{Yes}); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(port, in)
		if tcp, ok := port.(*net.TCPConn); ok {
			_ = tcp.CloseWrite()
		}
	}()
	_, _ = io.Copy(conn, port)
}

// daemon is the toolbox.
type daemon struct {
	config    Config
	sessions  table[*session]
	contexts  table[*interpreterContext]
	terminals table[*terminal]
}

func (d *daemon) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h handler) { mux.Handle(pattern, h) }
	handle("POST /process/execute", d.execute)
	handle("POST /process/code-run", d.codeRun)
	handle("POST /process/session", d.createSession)
	handle("GET /process/session", d.listSessions)
	handle("GET /process/session/{session}", d.getSession)
	handle("DELETE /process/session/{session}", d.deleteSession)
	handle("POST /process/session/{session}/exec", d.sessionExecute)
	handle("GET /process/session/{session}/command/{command}", d.getCommand)
	handle("GET /process/session/{session}/command/{command}/logs", d.commandLogs)
	handle("POST /process/session/{session}/command/{command}/input", d.commandInput)
	handle("GET /process/interpreter/execute", d.interpret)
	handle("POST /process/interpreter/context", d.createContext)
	handle("GET /process/interpreter/context", d.listContexts)
	handle("DELETE /process/interpreter/context/{id}", d.deleteContext)
	handle("POST /process/pty", d.createTerminal)
	handle("GET /process/pty", d.listTerminals)
	handle("GET /process/pty/{id}", d.getTerminal)
	handle("DELETE /process/pty/{id}", d.deleteTerminal)
	handle("POST /process/pty/{id}/resize", d.resizeTerminal)
	handle("GET /process/pty/{id}/connect", d.connectTerminal)
	handle("GET /files", d.list)
	handle("DELETE /files", d.deleteFile)
	handle("GET /files/info", d.fileInfo)
	handle("POST /files/folder", d.makeFolder)
	handle("POST /files/move", d.move)
	handle("POST /files/permissions", d.permit)
	handle("GET /files/find", d.find)
	handle("GET /files/search", d.search)
	handle("POST /files/replace", d.replace)
	handle("POST /files/bulk-upload", d.bulkUpload)
	handle("POST /files/bulk-download", d.bulkDownload)
	handle("GET /files/download", d.download)
	handle("GET /port", d.ports)
	handle("GET /port/{port}/in-use", d.portInUse)
	if d.config.New {
		handle("GET /process/pty/create-connect", d.createAndConnect)
		handle("POST /files/upload-v2", d.upload)
		handle("GET /system/metrics", d.metrics)
	} else {
		handle("POST /files/upload", d.upload)
	}
	handle("GET /work-dir", d.dir)
	handle("GET /user-home-dir", d.dir)
	handle("GET /version", func(w http.ResponseWriter, r *http.Request) error {
		return answer(w, http.StatusOK, map[string]string{"version": d.config.Version})
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, pattern := mux.Handler(r); pattern == "" || r.URL.Path != filepath.Clean(r.URL.Path) {
			// As all errors outside a handler it does not say where and when.
			_ = answer(w, http.StatusNotFound, map[string]any{
				"statusCode": http.StatusNotFound, "message": "Not Found", "code": "NOT_FOUND", "source": source, "path": "", "method": "", "timestamp": time.Time{},
			})
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (d *daemon) dir(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, http.StatusOK, map[string]string{"dir": d.config.Home})
}

// source is what the daemon calls itself in errors.
const source = "DAYTONA_DAEMON"

// failure is an error with a status and a code.
type failure struct {
	status        int
	code, message string
}

func (f *failure) Error() string { return f.message }

func badRequest(format string, arguments ...any) error {
	return &failure{http.StatusBadRequest, "BAD_REQUEST", fmt.Sprintf(format, arguments...)}
}

// handler serves a request; an error that it returns is the answer.
type handler func(http.ResponseWriter, *http.Request) error

func (h handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	err := h(w, r)
	if err == nil {
		return
	}
	f, ok := err.(*failure) //nolint:errorlint // handlers wrap none
	if !ok {
		f = &failure{http.StatusInternalServerError, "INTERNAL_SERVER_ERROR", err.Error()}
	}
	_ = answer(w, f.status, map[string]any{
		"statusCode": f.status, "message": f.message, "code": f.code, "source": source,
		"path": r.URL.Path, "method": r.Method, "timestamp": time.Now().UTC(),
	})
}

func answer(w http.ResponseWriter, status int, body any) error {
	w.Header().Set("Content-Type", "application/json; charset=utf-8")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the client may have gone
	return nil
}

// read reads a body of a shape; it refuses members that are not known.
func read(r *http.Request, s shape.Shape, into any) error {
	if kind := r.Header.Get("Content-Type"); !strings.HasPrefix(kind, "application/json") {
		return badRequest("the content type is %q", kind)
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return badRequest("%v", err)
	}
	if err := shape.Check(s, body).Strict().Err(); err != nil {
		return badRequest("%v", err)
	}
	return json.Unmarshal(body, into)
}

// query reads the parameters of a request, of which those in needed must be there and
// others but those in optional must not.
func query(r *http.Request, needed, optional string) (map[string]string, error) {
	values := map[string]string{}
	for name, all := range r.URL.Query() {
		if len(all) != 1 || !strings.Contains(" "+needed+" "+optional+" ", " "+name+" ") {
			return nil, badRequest("parameter %q", name)
		}
		values[name] = all[0]
	}
	for name := range strings.FieldsSeq(needed) {
		if values[name] == "" {
			return nil, badRequest("%s is required", name)
		}
	}
	return values, nil
}
