package providertest_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// misplaced has a context begin in another directory once its interpreter was replaced in
// the way that is asked for.
func misplaced(restarted bool, replaced func(sdk.ExecuteResult) bool) func(*local.Provider) sdk.Provider {
	return changing(func(c *capable) {
		var lost sync.Map
		c.restart = func(ctx context.Context, id, name string) error {
			if restarted {
				lost.Store(name, true)
			}
			return c.Provider.RestartContext(ctx, id, name)
		}
		c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			if _, ok := lost.Load(req.ContextID); ok {
				req.Code = "__import__('os').chdir('/')\n" + req.Code
			}
			result, err := c.Provider.Execute(ctx, req, out)
			if req.ContextID != "" && replaced(result) {
				lost.Store(req.ContextID, true)
			}
			return result, err
		}
	})
}

// quiet keeps back what code prints until it has ended.
type quiet struct {
	sdk.Output
	mu             sync.Mutex
	stdout, stderr []byte
}

func (q *quiet) Stdout(p []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stdout = append(q.stdout, p...)
	return nil
}

func (q *quiet) Stderr(p []byte) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.stderr = append(q.stderr, p...)
	return nil
}

func TestWrongInterpretersAreFound(t *testing.T) {
	const group = "contexts/python/"
	never := func(sdk.ExecuteResult) bool { return false }
	executing := func(change func(context.Context, *capable, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error)) func(*local.Provider) sdk.Provider {
		return changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				return change(ctx, c, req, out)
			}
		})
	}
	checkMutations(t, map[string]mutation{
		"a restart into another directory": {
			among: group + "(restarted|after|killed)", fails: []string{group + "restarted, it has its directory and its variables"},
			wraps: misplaced(true, never),
		},
		"a death that leads into another directory": {
			among: group + "(restarted|after|killed)", fails: []string{group + "after the death of its interpreter it has its directory and its variables"},
			wraps: misplaced(false, func(r sdk.ExecuteResult) bool { return r.Status == sdk.StatusFailed && r.Detail != "" }),
		},
		"a time limit that leads into another directory": {
			among: group + "(restarted|after|killed)", fails: []string{group + "killed at a time limit, it has its directory and its variables"},
			wraps: misplaced(false, func(r sdk.ExecuteResult) bool { return r.Status == sdk.StatusTimeout && r.Detail != "" }),
		},
		"variables that hold until the restart": {
			among: group + "restarted", fails: []string{", it has its directory and its variables"},
			wraps: changing(func(c *capable) {
				restarted := false
				c.restart = func(ctx context.Context, id, name string) error {
					restarted = true
					return c.Provider.RestartContext(ctx, id, name)
				}
				c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					if restarted {
						req.Code = "__import__('os').environ.pop('PROVIDERTEST_CONTEXT_QUOTES', None)\n" + req.Code
					}
					return c.Provider.Execute(ctx, req, out)
				}
			}),
		},
		"a death that is told at the time limit": {
			among: group + "code that ends", patience: 0.3, fails: []string{" its interpreter fails within seconds"},
			wraps: executing(func(ctx context.Context, c *capable, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := c.Provider.Execute(ctx, req, out)
				if result.Detail != "" {
					ctx, cancel := context.WithTimeout(ctx, req.Timeout)
					defer cancel()
					<-ctx.Done()
				}
				return result, err
			}),
		},
		"a death that counts as a time limit": {
			among: group + "code that ends", fails: []string{" its interpreter fails within seconds"},
			wraps: executing(func(ctx context.Context, c *capable, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := c.Provider.Execute(ctx, req, out)
				if result.Detail != "" {
					result.Status = sdk.StatusTimeout
				}
				return result, err
			}),
		},
		"output at the end": {
			among: group + "output", patience: 0.2, fails: []string{" arrives while its code runs"},
			wraps: executing(func(ctx context.Context, c *capable, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				kept := &quiet{Output: out}
				result, err := c.Provider.Execute(ctx, req, kept)
				return result, errors.Join(err, out.Stdout(kept.stdout), out.Stderr(kept.stderr))
			}),
		},
		"the value of something else": {
			among: group + "a declaration", fails: []string{" has no value"},
			wraps: executing(func(ctx context.Context, c *capable, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := c.Provider.Execute(ctx, req, out)
				return result, errors.Join(err, out.Artifact(sdk.Artifact{Kind: sdk.ArtifactResult, MIMEType: "text/plain", Data: []byte("of before"), Group: 1}))
			}),
		},
		"variables that stay": {
			among: group + "variables", fails: []string{" of one execution are gone after it"},
			wraps: executing(func(ctx context.Context, c *capable, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if value, ok := req.Env["PROVIDERTEST"]; ok {
					req.Env, req.Code = nil, "__import__('os').environ['PROVIDERTEST'] = '"+value+"'\n"+req.Code
				}
				return c.Provider.Execute(ctx, req, out)
			}),
		},
	})
}

func TestWrongPausesAreFound(t *testing.T) {
	const group = "pause/a (command|context|watch)"
	commands := func(signal syscall.Signal) func(*capable) {
		return func(c *capable) {
			c.pause = func(ctx context.Context, id string) error {
				list, err := c.Provider.ListCommands(ctx, id)
				if err := errors.Join(err, c.Provider.Pause(ctx, id)); err != nil {
					return err
				}
				for _, l := range list {
					if l.State == sdk.CommandRunning {
						err = errors.Join(err, c.Provider.SignalCommand(ctx, id, l.ID, map[syscall.Signal]string{syscall.SIGCONT: "SIGCONT", syscall.SIGKILL: "SIGKILL"}[signal]))
					}
				}
				return err
			}
		}
	}
	checkMutations(t, map[string]mutation{
		"commands that go on in a pause": {
			among: group, fails: []string{"pause/a command stands still and goes on"},
			wraps: changing(commands(syscall.SIGCONT)),
		},
		"commands that a pause ends": {
			among: group, patience: 0.3, fails: []string{"pause/a command stands still and goes on", "pause/a command is read, written to and signalled after a pause"},
			wraps: changing(commands(syscall.SIGKILL)),
		},
		"commands that are told to have failed": {
			among: group, fails: []string{"pause/a command is read, written to and signalled after a pause"},
			wraps: changing(func(c *capable) {
				paused := false
				c.pause = func(ctx context.Context, id string) error {
					paused = true
					return c.Provider.Pause(ctx, id)
				}
				c.listCommands = func(list []sdk.Command) []sdk.Command {
					for i := range list {
						if paused && list[i].State == sdk.CommandRunning {
							list[i].State, list[i].ExitCode = sdk.CommandFailed, 137
						}
					}
					return list
				}
			}),
		},
		"contexts that a pause empties": {
			among: group, fails: []string{"pause/a context keeps its state"},
			wraps: changing(func(c *capable) {
				c.pause = func(ctx context.Context, id string) error {
					list, err := c.ListContexts(ctx, id)
					for _, l := range list {
						err = errors.Join(err, c.Provider.RestartContext(ctx, id, l.ID))
					}
					return errors.Join(err, c.Provider.Pause(ctx, id))
				}
			}),
		},
		"a watch that is deaf after a pause": {
			among: group, patience: 0.3, fails: []string{"pause/a watch goes on, or says that it has ended"},
			wraps: changing(func(c *capable) {
				var deaf sync.Map
				c.pause = func(ctx context.Context, id string) error {
					deaf.Store(id, true)
					return c.Provider.Pause(ctx, id)
				}
				c.watch = func(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
					return c.Provider.WatchFiles(ctx, req, ready, func(list []sdk.FileChange) error {
						if _, ok := deaf.Load(req.InstanceID); ok {
							return nil
						}
						return changed(list)
					})
				}
			}),
		},
		"a watch that ends as if nobody had paused": {
			among: group, fails: []string{"pause/a watch goes on, or says that it has ended"},
			wraps: changing(func(c *capable) {
				var ends sync.Map
				c.pause = func(ctx context.Context, id string) error {
					if end, ok := ends.LoadAndDelete(id); ok {
						end.(context.CancelFunc)()
					}
					return c.Provider.Pause(ctx, id)
				}
				c.watch = func(ctx context.Context, req sdk.WatchFilesRequest, ready func() error, changed func([]sdk.FileChange) error) error {
					watching, cancel := context.WithCancel(ctx)
					defer cancel()
					ends.Store(req.InstanceID, cancel)
					err := c.Provider.WatchFiles(watching, req, ready, changed)
					if ctx.Err() == nil {
						err = sdk.Errorf(sdk.CodeUnavailable, "the connection was reset")
					}
					return err
				}
			}),
		},
	})
}
