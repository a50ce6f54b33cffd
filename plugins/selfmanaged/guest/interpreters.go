package guest

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/isolation"
	"github.com/sandbox-broker/sandbox-broker/sdk/program/returned"
)

// runners run code in interpreters; parts of them are loaded when they are needed.
//
//go:embed runner.py context.py display.py notebook.py context.sh runner.js context.js display.js
var runners embed.FS

// restartDelay is how long after an execution the next interpreter is started
// ahead. Most instances run one execution and are then destroyed: for them it
// would be wasted.
const restartDelay = 50 * time.Millisecond

// errUnknownLanguage is answered for a language that has no interpreter here.
var errUnknownLanguage = errors.New("no interpreter for this language in the sandbox")

// interpreters starts interpreters and keeps one of each warm language ready.
// What it started ends with the guest: process 1 takes the sandbox along.
type interpreters struct {
	paths  map[string]string
	limits isolation.Limits
	warm   []string

	mu    sync.Mutex
	ahead map[string]*ahead // by language
}

// ahead is an interpreter that was started before anybody needs it.
type ahead struct {
	ready   chan struct{} // closed when the rest is valid
	process *process
	err     error
}

func newInterpreters(req *guestv1.PrepareRequest) *interpreters {
	return &interpreters{
		paths:  req.GetInterpreters(),
		limits: isolation.Limits{Processes: req.GetProcessLimit(), FileSize: req.GetFileSizeLimit()},
		warm:   req.GetWarm(),
		ahead:  map[string]*ahead{},
	}
}

// warmUp starts the warm interpreters and waits until they are ready.
func (in *interpreters) warmUp(ctx context.Context) error {
	for _, language := range in.warm {
		a := in.startAhead(language)
		select {
		case <-a.ready:
			if a.err != nil {
				return a.err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// startAhead starts an interpreter in the background, unless there is one.
func (in *interpreters) startAhead(language string) *ahead {
	in.mu.Lock()
	defer in.mu.Unlock()
	a := in.ahead[language]
	if a == nil {
		a = &ahead{ready: make(chan struct{})}
		in.ahead[language] = a
		go func() {
			defer close(a.ready)
			a.process, a.err = in.start(language)
		}()
	}
	return a
}

// start starts an interpreter and waits until it is ready.
func (in *interpreters) start(language string) (*process, error) {
	s, leaves := in.waiting(language)
	p, err := startProcess(s)
	if err != nil {
		return nil, err
	}
	p.leaves = leaves
	if err := p.waitReady(); err != nil {
		p.Kill()
		p.wait()
		return nil, fmt.Errorf("%s: %w", language, err)
	}
	return p, nil
}

// take returns an interpreter that has run nothing before: the one that was
// started ahead, or one that is started now.
func (in *interpreters) take(language string) (*process, error) {
	if in.paths[language] == "" {
		return nil, errUnknownLanguage
	}
	in.mu.Lock()
	a := in.ahead[language]
	delete(in.ahead, language)
	in.mu.Unlock()
	if a != nil {
		if <-a.ready; a.err == nil {
			return a.process, nil
		}
	}
	return in.start(language)
}

// replace starts the next interpreter ahead, a little later.
func (in *interpreters) replace(language string) {
	if slices.Contains(in.warm, language) {
		time.AfterFunc(restartDelay, func() { in.startAhead(language) })
	}
}

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
		"returned.js": append(slices.Clip(returned.JavaScript()), "module.exports = express;\n"...),
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
	for name, source := range sources {
		if err := os.WriteFile(filepath.Join(RunDir, name), source, 0o444); err != nil {
			return fmt.Errorf("write runner: %w", err)
		}
	}
	return nil
}
