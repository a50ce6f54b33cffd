package guest

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/selfmanaged/guest/guestv1"
)

var (
	//go:embed runner.py
	pythonRunner string
	//go:embed runner.js
	nodeRunner string
)

// restartDelay is how long after an execution the next interpreter is started
// ahead. Most instances run one execution and are then destroyed: for them it
// would be wasted.
const restartDelay = 50 * time.Millisecond

// errUnknownLanguage is answered for a language that has no interpreter here.
var errUnknownLanguage = errors.New("no interpreter for this language in the sandbox")

// interpreters starts interpreters and keeps one of each warm language ready.
type interpreters struct {
	paths     map[string]string
	processes uint64
	fileSize  uint64
	warm      map[string]bool

	mu     sync.Mutex
	ready  map[string]*process
	timers map[string]*time.Timer
	closed bool
	wg     sync.WaitGroup
}

func newInterpreters(req *guestv1.PrepareRequest) *interpreters {
	in := &interpreters{
		paths:     req.GetInterpreters(),
		processes: req.GetProcessLimit(),
		fileSize:  req.GetFileSizeLimit(),
		warm:      map[string]bool{},
		ready:     map[string]*process{},
		timers:    map[string]*time.Timer{},
	}
	for _, language := range req.GetWarm() {
		in.warm[language] = true
	}
	return in
}

// warmUp starts the warm interpreters and waits until they are ready.
func (in *interpreters) warmUp(ctx context.Context, languages []string) error {
	for _, language := range languages {
		done := make(chan error, 1)
		in.wg.Go(func() { done <- in.startAhead(language) })
		select {
		case err := <-done:
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err() // close, which the caller owes us, ends the start
		}
	}
	return nil
}

func (in *interpreters) startAhead(language string) error {
	p, err := startProcess(in.waiting(language))
	if err != nil {
		return err
	}
	if err := p.waitReady(); err != nil {
		p.kill()
		p.wait()
		return fmt.Errorf("%s: %w", language, err)
	}
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed || in.ready[language] != nil {
		p.kill()
		p.wait()
		return nil
	}
	in.ready[language] = p
	return nil
}

// take returns an interpreter that has run nothing before: the one that is
// ready, or one that is started now.
func (in *interpreters) take(req *guestv1.ExecuteRequest) (*process, error) {
	language := req.GetLanguage()
	if in.paths[language] == "" {
		return nil, errUnknownLanguage
	}
	if language == Bash {
		return startProcess(in.shell(req))
	}
	in.mu.Lock()
	p := in.ready[language]
	delete(in.ready, language)
	in.mu.Unlock()
	if p != nil {
		return p, nil
	}
	p, err := startProcess(in.waiting(language))
	if err != nil {
		return nil, err
	}
	if err := p.waitReady(); err != nil {
		p.kill()
		p.wait()
		return nil, err
	}
	return p, nil
}

// replace starts the next interpreter ahead, a little later.
func (in *interpreters) replace(language string) {
	in.mu.Lock()
	defer in.mu.Unlock()
	if in.closed || !in.warm[language] || in.ready[language] != nil || in.timers[language] != nil {
		return
	}
	in.wg.Add(1)
	in.timers[language] = time.AfterFunc(restartDelay, func() {
		defer in.wg.Done()
		in.mu.Lock()
		delete(in.timers, language)
		skip := in.closed || in.ready[language] != nil
		in.mu.Unlock()
		if !skip {
			_ = in.startAhead(language) // the next take starts one itself, and reports
		}
	})
}

// close kills what is ready and waits for what is starting.
func (in *interpreters) close() {
	in.mu.Lock()
	in.closed = true
	for language, p := range in.ready {
		p.kill()
		p.wait()
		delete(in.ready, language)
	}
	for language, timer := range in.timers {
		if timer.Stop() {
			in.wg.Done()
		}
		delete(in.timers, language)
	}
	in.mu.Unlock()
	in.wg.Wait()
}

// waiting is an interpreter with the runner that waits for a request.
func (in *interpreters) waiting(language string) spawn {
	path := in.paths[language]
	s := in.spawn(nil)
	switch language {
	case Python:
		// -I: neither the environment nor files of earlier executions have a
		// say; -u: what was printed before a timeout is not lost.
		s.Argv = []string{path, "-I", "-B", "-u", filepath.Join(RunDir, "runner.py")}
	case JavaScript:
		s.Argv = []string{path, filepath.Join(RunDir, "runner.js")}
	}
	return s
}

// shell runs bash at once: it starts fast, and its environment cannot be
// changed later from outside.
func (in *interpreters) shell(req *guestv1.ExecuteRequest) spawn {
	s := in.spawn(req.GetEnv())
	s.Argv = []string{in.paths[req.GetLanguage()], "--noprofile", "--norc", "-c", `set -- "$(cat <&3)"; exec 3<&- 4>&-; eval "set --;$1"`, "main.sh"}
	return s
}

func (in *interpreters) spawn(env map[string]string) spawn {
	return spawn{Env: environment(env), Processes: in.processes, FileSize: in.fileSize}
}

func writeRunners() error {
	if err := os.MkdirAll(RunDir, 0o755); err != nil {
		return fmt.Errorf("make room for the runners: %w", err)
	}
	for name, source := range map[string]string{"runner.py": pythonRunner, "runner.js": nodeRunner} {
		if err := os.WriteFile(filepath.Join(RunDir, name), []byte(source), 0o444); err != nil {
			return fmt.Errorf("write runner: %w", err)
		}
	}
	return nil
}
