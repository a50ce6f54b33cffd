// Package agent is what runs inside a sandbox of the fake: envd, which has processes
// and files, on one Unix socket, and the code interpreter on another.
//
// It behaves as the originals were seen to, inconvenient parts included: a stream
// ends when the last holder of its pipes closes them, a time limit kills the direct
// child alone, output that nobody reads is thrown away, zero values are left out of
// JSON. Package e2bfake starts it and stands in front of it; it has no faults of its
// own to inject.
package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// Variable of the environment that makes a program an agent. Its Config comes as JSON on
// standard input: it may be longer than the kernel lets a variable be.
const Variable = "E2BFAKE_AGENT"

// The sockets in Config.Dir.
const (
	EnvdSocket        = "envd"
	InterpreterSocket = "interpreter"
)

// Config is what a sandbox is made with.
type Config struct {
	// Dir has the sockets.
	Dir string
	// Version of envd whose behaviour it has, and no later one's.
	Version string
	// Env is the global environment.
	Env map[string]string
	// Token that envd asks for; empty for none.
	Token string
	// Interpreter says whether the template has the code interpreter.
	Interpreter bool
	// Kept is what the sandbox goes on from, with FilesKept in Dir; nil for a fresh one.
	Kept *Kept
}

// Main turns the process into an agent if the environment says so, and then does
// not return. A test binary that uses the fake calls it first in TestMain.
func Main() {
	if _, ok := os.LookupEnv(Variable); !ok {
		return
	}
	_ = os.Unsetenv(Variable)
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "agent:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run serves until standard input ends, which it does with the fake.
func run() error {
	var c Config
	if err := json.NewDecoder(os.Stdin).Decode(&c); err != nil {
		return err
	}
	env := map[string]string{"E2B_SANDBOX": "true"}
	maps.Copy(env, c.Env)
	c.Env = env
	e := newEnvd(c)
	var i *interpreter
	if c.Interpreter {
		i = newInterpreter(c.Env)
	}
	if err := goOn(c, e, i); err != nil {
		return err
	}
	servers := map[string]http.Handler{EnvdSocket: e.handler(i)}
	if i != nil {
		servers[InterpreterSocket] = i.handler()
	}
	failed := make(chan error, len(servers)+1)
	for name, handler := range servers {
		listener, err := net.Listen("unix", filepath.Join(c.Dir, name))
		if err != nil {
			return err
		}
		go func() { failed <- http.Serve(listener, handler) }()
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

// goOn brings a copy to where its original was.
func goOn(c Config, e *envd, i *interpreter) error {
	if c.Kept == nil {
		return nil
	}
	if err := unpackFiles(c.Dir); err != nil {
		return err
	}
	if i != nil {
		if err := i.revive(c.Kept.Kernels); err != nil {
			return err
		}
		if err := unpackFiles(c.Dir); err != nil {
			return err
		}
	}
	for _, p := range c.Kept.Processes {
		if _, err := e.launch(p.User, p.startRequest); err != nil {
			return err
		}
	}
	return os.Remove(filepath.Join(c.Dir, FilesKept))
}

// freeze stops or continues every process of the sandbox but the agent itself and
// the first one, which signals of this kind do not reach.
func freeze(signal syscall.Signal) error {
	err := syscall.Kill(-1, signal)
	if errors.Is(err, syscall.ESRCH) { // there are none
		return nil
	}
	return err
}

// The bodies that the code interpreter takes. What may be absent may be null too.
var (
	newContext = shape.Object{Optional: map[string]shape.Shape{
		"language": shape.Nullable{Shape: shape.Text{}}, "cwd": shape.Nullable{Shape: shape.Text{}},
	}}
	newExecution = shape.Object{
		Needed: map[string]shape.Shape{"code": shape.Text{}},
		Optional: map[string]shape.Shape{
			"context_id": shape.Nullable{Shape: shape.Text{}}, "language": shape.Nullable{Shape: shape.Text{}}, "env_vars": shape.Lacking{},
		},
	}
)
