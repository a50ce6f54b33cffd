package guest

import (
	"context"
	"crypto/rand"
	"embed"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/forkserver"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/memory"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/returned"
)

// runners run code in interpreters; parts of them are loaded when they are needed.
//
//go:embed runner.py fork_server.py context.py display.py charts.py notebook.py context.sh runner.js context.js display.js
var runners embed.FS

// errUnknownLanguage is answered for a language that has no interpreter here.
var errUnknownLanguage = errors.New("no interpreter for this language in the sandbox")

// interpreters starts interpreters and keeps one of each warm language ready.
// What it started ends with the guest: process 1 takes the sandbox along.
type interpreters struct {
	paths  map[string]string
	limits isolation.Limits
	warm   []string

	forks forks

	guard *memory.Guard

	mu       sync.Mutex
	reserves map[string]*reserve // by language
}

// forks is the fork server for Python. The first interpreter of most sandboxes is the
// only one, so it is started by itself, and the server with the second.
type forks struct {
	mu     sync.Mutex
	wanted bool
	server *forkserver.Server
	broken error // why there is none; it is not tried again
}

func newInterpreters(req *guestv1.PrepareRequest, paths map[string]string, guard *memory.Guard) *interpreters {
	return &interpreters{
		paths:  paths,
		limits: isolation.Limits{Processes: req.GetProcessLimit(), FileSize: req.GetFileSizeLimit()},
		warm:   req.GetWarm(),
		guard:  guard, reserves: map[string]*reserve{},
	}
}

// warmUp makes the warm interpreters and waits until they are ready.
func (in *interpreters) warmUp(ctx context.Context) error {
	for _, language := range in.warm {
		if err := in.reserve(language).warmUp(ctx); err != nil {
			return err
		}
	}
	return nil
}

// reserve returns the reserve of a language that has an interpreter.
func (in *interpreters) reserve(language string) *reserve {
	in.mu.Lock()
	defer in.mu.Unlock()
	r := in.reserves[language]
	if r == nil {
		least := 0
		if slices.Contains(in.warm, language) {
			least = 1
		}
		r = newReserve(least, in.guard.HalfFree, func() (*process, error) { return in.start(language) })
		in.reserves[language] = r
	}
	return r
}

// pid of the fork server, 0 for none.
func (f *forks) pid() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.server == nil {
		return 0
	}
	return f.server.PID()
}

// allReserves are those of all languages that were used.
func (in *interpreters) allReserves() []*reserve {
	in.mu.Lock()
	defer in.mu.Unlock()
	return slices.Collect(maps.Values(in.reserves))
}

// start starts an interpreter and waits until it is ready.
func (in *interpreters) start(language string) (*process, error) {
	p, err := in.begin(language)
	if err != nil {
		return nil, err
	}
	if err := p.waitReady(); err != nil {
		p.Kill()
		p.wait()
		return nil, fmt.Errorf("%s: %w", language, err)
	}
	return p, nil
}

// begin starts or forks an interpreter.
func (in *interpreters) begin(language string) (*process, error) {
	s, leaves := in.waiting(language)
	if language == Python {
		if server := in.forks.ready(s, in.guard); server != nil {
			// What cannot be forked is started: that is slower, and needs less.
			if p, err := forkProcess(server); err == nil {
				return p, nil
			}
		}
	}
	p, err := startProcess(s)
	if err != nil {
		return nil, err
	}
	p.leaves = leaves
	return p, nil
}

// want has the next interpreter forked.
func (f *forks) want() {
	f.mu.Lock()
	f.wanted = true
	f.mu.Unlock()
}

// ready returns a fork server of interpreters that s would start; nil if there can be
// none, or for the first one.
func (f *forks) ready(s isolation.Spec, guard *memory.Guard) *forkserver.Server {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.wanted {
		f.wanted = true
		return nil
	}
	if f.server != nil && f.server.Ended() {
		f.server = nil
	}
	if f.server == nil && f.broken == nil {
		guard.Exempt(func() {
			f.server, f.broken = forkserver.Start(append(slices.Clip(s.Argv), "serve"), s.Env, s.Limits)
		})
		if f.broken != nil {
			fmt.Fprintln(os.Stderr, "sandbox: every interpreter is started afresh:", f.broken)
		}
	}
	return f.server
}

// take returns an interpreter that has run nothing before: the one that was
// started ahead, or one that is started now.
func (in *interpreters) take(language string) (*process, error) {
	if in.paths[language] == "" {
		return nil, errUnknownLanguage
	}
	return in.reserve(language).take()
}

// replace makes the next interpreter ahead, a little later.
func (in *interpreters) replace(language string) { in.reserve(language).replace() }

// waiting is an interpreter that waits for a request, and the file that it may leave.
func (in *interpreters) waiting(language string) (s isolation.Spec, leaves string) {
	path := in.paths[language]
	s = isolation.Spec{Env: isolation.CodeEnvironment(nil), Limits: in.limits}
	switch language {
	case Python:
		// -I: neither the environment nor files of earlier executions have a
		// say; -u: what was printed before a timeout is not lost.
		s.Argv = []string{path, "-I", "-B", "-u", filepath.Join(RunDir, "runner.py")}
	case JavaScript:
		// The name is new: what an earlier execution put in its place would be
		// followed.
		leaves = filepath.Join(isolation.WorkspaceDir, ".main-"+rand.Text()+".mjs")
		s.Argv = []string{path, filepath.Join(RunDir, "runner.js"), leaves}
	case Bash:
		s.Argv = []string{path, "--noprofile", "--norc", "-c", shellRunner, "main.sh"}
	}
	return s, leaves
}

// shellRunner waits in a cat that was found and started before any variable of
// the caller is set, so that nothing has to be started when the code comes. It
// leaves the code neither descriptors nor variables.
const shellRunner = `printf R >&4; set -- "$(cat <&3 3<&- 4>&-)"; exec 3<&- 4>&-; eval "set --;$1"`

func writeRunners() error {
	if err := os.MkdirAll(RunDir, 0o755); err != nil {
		return fmt.Errorf("make room for the runners: %w", err)
	}
	sources := map[string][]byte{
		"returned.py": returned.Python(),
		"returned.js": append(slices.Clip(returned.JavaScript()), "module.exports = { exportedMain, express };\n"...),
	}
	files, err := runners.ReadDir(".")
	if err != nil {
		return fmt.Errorf("find the runners: %w", err)
	}
	for _, f := range files {
		if sources[f.Name()], err = runners.ReadFile(f.Name()); err != nil {
			return fmt.Errorf("find the runners: %w", err)
		}
	}
	filter, err := isolation.NamespaceFilter()
	if err != nil {
		return err
	}
	for _, instruction := range filter {
		sources["namespaces.bpf"], err = binary.Append(sources["namespaces.bpf"], binary.NativeEndian, instruction)
		if err != nil {
			return fmt.Errorf("encode the filter: %w", err)
		}
	}
	for name, source := range sources {
		if err := os.WriteFile(filepath.Join(RunDir, name), source, 0o444); err != nil {
			return fmt.Errorf("write runner: %w", err)
		}
	}
	return nil
}
