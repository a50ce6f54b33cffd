package local

import (
	"context"
	"maps"
	"os"
	"sync"
	"syscall"

	"github.com/sandbox-broker/sandbox-broker/sdk/processtree"
)

// process is a program of an instance, with all that it starts.
type process struct {
	processtree.Program
	instance *instance

	mu     sync.Mutex
	tree   *processtree.Tree // nil until it runs
	exit   processtree.Exit  // once it has ended
	reason error             // why it was killed; nil if it was not
}

// newProcess prepares a program with the environment of the instance.
func (i *instance) newProcess(argv []string, env ...map[string]string) *process {
	p := &process{instance: i, Program: processtree.Program{Argv: argv, Dir: i.workspace()}}
	all := map[string]string{"PATH": os.Getenv("PATH"), "HOME": i.workspace(), "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"}
	maps.Copy(all, i.network.environment())
	maps.Copy(all, i.Env)
	for _, more := range env {
		maps.Copy(all, more)
	}
	for name, value := range all {
		p.Env = append(p.Env, name+"="+value)
	}
	return p
}

// end kills the process and all that it started, and remembers the first reason.
func (p *process) end(reason error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.reason == nil {
		p.reason = reason
	}
	if p.tree != nil {
		p.tree.Kill()
	}
}

func (p *process) endedBy() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.reason
}

// signal sends a signal to all of it; to nothing before it runs and after it has ended.
func (p *process) signal(signal syscall.Signal) {
	p.mu.Lock()
	tree := p.tree
	p.mu.Unlock()
	if tree != nil {
		_ = tree.Signal(signal)
	}
}

// start starts the process.
func (p *process) start() error {
	tree, err := processtree.Start(p.Program)
	if err != nil {
		return err
	}
	p.mu.Lock()
	p.tree = tree
	if p.reason != nil {
		tree.Kill()
	}
	p.mu.Unlock()
	p.instance.mu.Lock()
	defer p.instance.mu.Unlock()
	p.instance.processes[p] = tree
	return nil
}

// wait returns when nothing of the process is left, which ctx may bring about.
func (p *process) wait(ctx context.Context) {
	stop := context.AfterFunc(ctx, func() { p.end(context.Cause(ctx)) })
	exit, err := p.tree.Wait()
	stop()
	p.mu.Lock()
	p.exit = exit
	if p.reason == nil {
		p.reason = err
	}
	p.mu.Unlock()
	p.instance.mu.Lock()
	defer p.instance.mu.Unlock()
	delete(p.instance.processes, p)
	p.instance.cpu += exit.CPUTime
}

// run is start and wait, and passes on what the process prints.
func (p *process) run(ctx context.Context, stdout, stderr func([]byte) error) error {
	p.Stdout, p.Stderr = writerFunc(stdout), writerFunc(stderr)
	if err := p.start(); err != nil {
		return err
	}
	p.wait(ctx)
	return nil
}

type writerFunc func([]byte) error

func (f writerFunc) Write(b []byte) (int, error) {
	if err := f(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

// exitCode is that of the program, or 128 and the signal.
func (p *process) exitCode() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.exit.Code
}

// trees are those of all processes of the instance.
func (i *instance) trees() []*processtree.Tree {
	i.mu.Lock()
	defer i.mu.Unlock()
	var all []*processtree.Tree
	for _, tree := range i.processes {
		all = append(all, tree)
	}
	return all
}
