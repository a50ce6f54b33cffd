package providertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// asking changes what Execute is asked.
func asking(change func(*sdk.ExecuteRequest)) func(*broken) {
	return func(b *broken) {
		b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			change(&req)
			return b.Provider.Execute(ctx, req, out)
		}
	}
}

// answering changes what Execute answers.
func answering(change func(*sdk.ExecuteResult)) func(*broken) {
	return func(b *broken) {
		b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			result, err := b.Provider.Execute(ctx, req, out)
			change(&result)
			return result, err
		}
	}
}

// printing changes where output goes; the second function is called at the end.
func printing(through func(sdk.Output) (sdk.Output, func() error)) func(*broken) {
	return func(b *broken) {
		b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
			changed, end := through(out)
			result, err := b.Provider.Execute(ctx, req, changed)
			return result, errors.Join(err, end())
		}
	}
}

// outputs is an Output of functions.
type outputs struct {
	sdk.Output
	stdout, stderr func([]byte) error
}

func (o outputs) Stdout(p []byte) error {
	if o.stdout == nil {
		return o.Output.Stdout(p)
	}
	return o.stdout(p)
}

func (o outputs) Stderr(p []byte) error {
	if o.stderr == nil {
		return o.Output.Stderr(p)
	}
	return o.stderr(p)
}

func nothing() error { return nil }

// filtered changes the bytes of stdout.
func filtered(change func([]byte) []byte) func(*broken) {
	return printing(func(out sdk.Output) (sdk.Output, func() error) {
		return outputs{Output: out, stdout: func(p []byte) error { return out.Stdout(change(p)) }}, nothing
	})
}

func TestWrongExecutionsAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"an exit code of its own":       {among: "execute/bash/", fails: []string{"an exit code arrives as it is", "a signal is told as exit code 128 and more"}, breaks: answering(func(r *sdk.ExecuteResult) { r.ExitCode = min(r.ExitCode, 1) })},
		"a signal as a negative number": {among: "execute/bash/", fails: []string{"a signal is told as exit code 128 and more"}, breaks: answering(func(r *sdk.ExecuteResult) { r.ExitCode = max(r.ExitCode, 0) % 128 })},
		"success whatever happens":      {among: "execute/bash/", fails: []string{"an exit code arrives as it is", "a signal is told as exit code 128 and more", "code that crashes fails and says why", "text that is no code fails and says why", "the duration is that of the code", "the instance goes on after code that failed"}, breaks: answering(func(r *sdk.ExecuteResult) { r.Status = sdk.StatusSucceeded })},
		"a result of a script":          {among: "execute/bash/", fails: []string{"a plain script has no result"}, breaks: answering(func(r *sdk.ExecuteResult) { r.Result = json.RawMessage("null") })},
		"no duration":                   {among: "execute/bash/", fails: []string{"the duration is that of the code"}, breaks: answering(func(r *sdk.ExecuteResult) { r.Duration = 0 })},
		"a duration in the wrong unit":  {among: "execute/bash/", fails: []string{"the duration is that of the code"}, breaks: answering(func(r *sdk.ExecuteResult) { r.Duration *= 1000 })},
		"no variables of the execution": {among: "execute/bash/", fails: []string{"variables of the execution are in the environment", "variables of the execution win and end with it", "values of variables arrive unchanged"}, breaks: asking(func(r *sdk.ExecuteRequest) { r.Env = nil })},
		"values of one line": {among: "execute/bash/", fails: []string{"values of variables arrive unchanged"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			for name, value := range r.Env {
				r.Env[name], _, _ = strings.Cut(value, "\n")
			}
		})},
		"short code only":             {among: "execute/bash/", fails: []string{"long code runs"}, breaks: asking(func(r *sdk.ExecuteRequest) { r.Code = r.Code[:min(len(r.Code), 100_000)] })},
		"something on standard input": {among: "execute/bash/", fails: []string{"standard input is empty"}, breaks: asking(func(r *sdk.ExecuteRequest) { r.Code = "exec <<<text\n" + r.Code })},
		"a shell for all": {among: "execute/bash/variables of the code", fails: []string{" do not stay"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			r.Code = "[ -e .vars ] && . ./.vars\ntrap 'export -p > .vars' EXIT\n" + r.Code
		})},
		"errors of the code that vanish": {among: "execute/bash/", fails: []string{"code that crashes fails and says why", "text that is no code fails and says why"}, breaks: printing(func(out sdk.Output) (sdk.Output, func() error) {
			return outputs{Output: out, stderr: func([]byte) error { return nil }}, nothing
		})},
		"no variables of the instance": {among: "execute/bash/", fails: []string{"variables of the instance are in the environment", "variables of the execution win and end with it"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.Env = nil
				return b.Provider.Create(ctx, req)
			}
		}},
		"variables that stay": {among: "execute/bash/variables of the", fails: []string{" execution win and end with it"}, breaks: func(b *broken) {
			var last map[string]string
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if req.Env != nil {
					last = req.Env
				}
				req.Env = last
				return b.Provider.Execute(ctx, req, out)
			}
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				last = nil
				return b.Provider.Create(ctx, req)
			}
		}},
		"a fresh directory each time": {among: "execute/bash/", fails: []string{"files stay from one execution to the next"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				defer func() { _ = b.RemoveFile(ctx, req.InstanceID, "providertest.txt", false) }()
				return b.Provider.Execute(ctx, req, out)
			}
		}},
		"an instance that ends with code that fails": {among: "execute/bash/", fails: []string{"the instance goes on after code that failed"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := b.Provider.Execute(ctx, req, out)
				if result.Status == sdk.StatusFailed {
					return result, errors.Join(err, b.Provider.Destroy(ctx, req.InstanceID))
				}
				return result, err
			}
		}},
	})
}

func TestWrongOutputIsFound(t *testing.T) {
	var one sync.Mutex
	checkMutations(t, map[string]mutation{
		"one stream": {
			among: "streams/bash/", fails: []string{"stdout and stderr are told apart", "much output arrives whole", "output above the limit is cut there, and said so", "output of the limit's size is not cut", "an output that nobody reads holds up nothing else"},
			breaks: printing(func(out sdk.Output) (sdk.Output, func() error) {
				return outputs{Output: out, stderr: out.Stdout}, nothing
			}),
		},
		"output at the end only": {among: "streams/bash/output arrives while", fails: []string{" the code runs"}, patience: 0.3, breaks: printing(func(out sdk.Output) (sdk.Output, func() error) {
			var kept bytes.Buffer
			return outputs{Output: out, stdout: func(p []byte) error { kept.Write(p); return nil }}, func() error { return out.Stdout(kept.Bytes()) }
		})},
		"output out of order": {among: "streams/bash/output arrives in", fails: []string{" order and whole"}, breaks: printing(func(out sdk.Output) (sdk.Output, func() error) {
			var first []byte
			return outputs{Output: out, stdout: func(p []byte) error {
				if first == nil {
					first = bytes.Clone(p)
					return nil
				}
				return out.Stdout(p)
			}}, func() error { return out.Stdout(first) }
		})},
		"a line feed at the end": {among: "streams/bash/output ends", fails: []string{" where the code ended it"}, breaks: printing(func(out sdk.Output) (sdk.Output, func() error) {
			return out, func() error { return out.Stdout([]byte("\n")) }
		})},
		"text only":     {among: "streams/bash/", fails: []string{"bytes that are no text arrive"}, breaks: filtered(func(p []byte) []byte { return bytes.ToValidUTF8(p, []byte("?")) })},
		"plain letters": {among: "streams/bash/", fails: []string{"bytes that are no text arrive", "letters of all sizes arrive"}, breaks: filtered(func(p []byte) []byte { return bytes.Map(func(r rune) rune { return min(r, 127) }, p) })},
		"a limit that nobody set": {
			among: "streams/bash/", fails: []string{"much output arrives whole", "output of the limit's size is not cut", "an output that nobody reads holds up nothing else"},
			breaks: printing(func(out sdk.Output) (sdk.Output, func() error) {
				left := 150_000
				return outputs{Output: out, stdout: func(p []byte) error {
					p = p[:min(len(p), left)]
					left -= len(p)
					return out.Stdout(p)
				}}, nothing
			}),
		},
		"code that ends at the limit": {among: "streams/bash/", fails: []string{"code goes on when its output is cut", "output above the limit is cut there, and said so"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				left := req.OutputLimit
				return b.Provider.Execute(ctx, req, outputs{Output: out, stdout: func(p []byte) error {
					if left -= int64(len(p)); left < 0 {
						return errors.New("full")
					}
					return out.Stdout(p)
				}})
			}
		}},
		"one output at a time": {among: "streams/bash/an output", fails: []string{" that nobody reads holds up nothing else"}, patience: 0.3, breaks: printing(func(out sdk.Output) (sdk.Output, func() error) {
			return outputs{Output: out, stdout: func(p []byte) error {
				one.Lock()
				defer one.Unlock()
				return out.Stdout(p)
			}}, nothing
		})},
		"code that nobody listens to": {among: "streams/bash/a listener", fails: []string{" that fails ends the execution"}, patience: 0.5, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				deaf := outputs{Output: out, stdout: func(p []byte) error { _ = out.Stdout(p); return nil }}
				return b.Provider.Execute(context.WithoutCancel(ctx), req, deaf)
			}
		}},
	})
}

func TestWrongDeadlinesAreFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"no timeout": {
			among: "deadlines/bash/code that (ignores signals is stopped|uses the CPU)", patience: 0.3,
			fails:  []string{"deadlines/bash/code that ignores signals is stopped at its timeout", "deadlines/bash/code that uses the CPU is stopped at its timeout"},
			breaks: asking(func(r *sdk.ExecuteRequest) { r.Timeout = time.Hour }),
		},
		"a timeout that counts as a failure": {
			among: "deadlines/bash/",
			fails: []string{"code is stopped at its timeout, with its output so far", "code that ignores signals is stopped at its timeout", "code that uses the CPU is stopped at its timeout", "a timeout ends what the code has started"},
			breaks: answering(func(r *sdk.ExecuteResult) {
				if r.Status == sdk.StatusTimeout {
					r.Status = sdk.StatusFailed
				}
			}),
		},
		"output lost at a timeout": {among: "deadlines/bash/code is stopped", fails: []string{" at its timeout, with its output so far"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				var kept bytes.Buffer
				result, err := b.Provider.Execute(ctx, req, outputs{Output: out, stdout: func(p []byte) error { kept.Write(p); return nil }})
				if result.Status == sdk.StatusTimeout {
					return result, err
				}
				return result, errors.Join(err, out.Stdout(kept.Bytes()))
			}
		}},
		"an instance that ends at a timeout": {
			among: "deadlines/bash/code (is stopped|that uses)",
			fails: []string{"deadlines/bash/code is stopped at its timeout, with its output so far", "deadlines/bash/code that uses the CPU is stopped at its timeout"},
			breaks: func(b *broken) {
				b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					result, err := b.Provider.Execute(ctx, req, out)
					if result.Status == sdk.StatusTimeout {
						return result, errors.Join(err, b.Provider.Destroy(ctx, req.InstanceID))
					}
					return result, err
				}
			},
		},
		"no long timeouts": {among: "deadlines/bash/code that ends", fails: []string{" in time is not stopped"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if req.Timeout > time.Hour {
					return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "timeout", "is above 1h")
				}
				return b.Provider.Execute(ctx, req, out)
			}
		}},
		"processes that live on": {
			among: "deadlines/python/(a timeout ends|the end of the code|cancelled code|the deadline)", patience: 0.5,
			fails: []string{
				"deadlines/python/a timeout ends what the code has started", "deadlines/python/the end of the code ends what it has started",
				"deadlines/python/cancelled code stops within a second", "deadlines/python/cancelled code stops with processes of other sessions",
				"deadlines/python/the deadline of a call stops the code",
			},
			breaks: func(b *broken) { b.execute = alone(b.Provider) },
		},
		"no cancellation": {
			among: "deadlines/bash/(cancelled code|a cancelled call|the deadline)", patience: 0.7,
			fails: []string{
				"deadlines/bash/cancelled code stops within a second", "deadlines/bash/cancelled code stops with processes of other sessions",
				"deadlines/bash/a cancelled call returns within a second", "deadlines/bash/the deadline of a call stops the code",
			},
			breaks: func(b *broken) {
				b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					return b.Provider.Execute(context.WithoutCancel(ctx), req, out)
				}
			},
		},
		"a cancellation of everything": {among: "deadlines/bash/(a cancelled execution|the instance goes)", fails: []string{
			"deadlines/bash/a cancelled execution disturbs no other", "deadlines/bash/the instance goes on after a cancelled execution",
		}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := b.Provider.Execute(ctx, req, out)
				if ctx.Err() != nil {
					_ = b.Provider.Destroy(context.WithoutCancel(ctx), req.InstanceID)
				}
				return result, err
			}
		}},
	})
}

func TestWrongConcurrencyIsFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"one execution at a time in an instance": {among: "concurrency/executions in one instance run", fails: []string{" side by side"}, patience: 0.3, breaks: func(b *broken) {
			var busy sync.Map
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				turn, _ := busy.LoadOrStore(req.InstanceID, make(chan struct{}, 1))
				select {
				case turn.(chan struct{}) <- struct{}{}:
				case <-ctx.Done():
					return sdk.ExecuteResult{}, ctx.Err()
				}
				defer func() { <-turn.(chan struct{}) }()
				return b.Provider.Execute(ctx, req, out)
			}
		}},
		"one execution at a time": {among: "concurrency/instances execute", fails: []string{" side by side"}, patience: 0.3, breaks: func(b *broken) {
			turn := make(chan struct{}, 1)
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				select {
				case turn <- struct{}{}:
				case <-ctx.Done():
					return sdk.ExecuteResult{}, ctx.Err()
				}
				defer func() { <-turn }()
				return b.Provider.Execute(ctx, req, out)
			}
		}},
		"the variables of whoever came first": {among: "concurrency/executions in one instance do", fails: []string{" not mix"}, breaks: func(b *broken) {
			var env atomic.Pointer[map[string]string]
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				first := req.Env
				env.CompareAndSwap(nil, &first)
				req.Env = *env.Load()
				return b.Provider.Execute(ctx, req, out)
			}
		}},
		"execution IDs for all instances": {among: "concurrency/the same", fails: []string{" execution ID in two instances is two executions"}, breaks: func(b *broken) {
			var mu sync.Mutex
			ends := map[string][]context.CancelFunc{}
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				ctx, cancel := context.WithCancel(ctx)
				mu.Lock()
				ends[req.ExecutionID] = append(ends[req.ExecutionID], cancel)
				mu.Unlock()
				defer func() {
					mu.Lock()
					defer mu.Unlock()
					for _, end := range ends[req.ExecutionID] {
						end()
					}
				}()
				return b.Provider.Execute(ctx, req, out)
			}
		}},
		"IDs given twice": {among: "concurrency/instances are", fails: []string{" made and destroyed side by side"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.IdempotencyKey = "one"
				return b.Provider.Create(ctx, req)
			}
		}},
		"a list that lacks what is there": {among: "concurrency/List", fails: []string{" works while instances come and go"}, breaks: func(b *broken) {
			b.list = func(list []sdk.Instance) []sdk.Instance { return list[min(1, len(list)):] }
		}},
	})
}

// collected is an output that is kept.
type collected struct {
	sdk.Output
	text []byte
}

func (c *collected) Stdout(p []byte) error { c.text = append(c.text, p...); return nil }

// passed gives a stream of a program to a function.
type passed func([]byte) error

func (f passed) Write(p []byte) (int, error) { return len(p), f(p) }

// alone runs Python as a process of its own, and ends that process only.
func alone(p *local.Provider) func(context.Context, sdk.ExecuteRequest, sdk.Output) (sdk.ExecuteResult, error) {
	return func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
		where := &collected{Output: out}
		question := req
		question.Code, question.Arguments = "import os\nprint(os.getcwd(), end='')\n", nil
		if result, err := p.Execute(ctx, question, where); err != nil || result.Status != sdk.StatusSucceeded {
			return result, err
		}
		timed, cancel := context.WithTimeout(ctx, req.Timeout)
		defer cancel()
		program := exec.CommandContext(timed, "python3", "-c", req.Code)
		program.Dir, program.Stdout, program.Stderr = string(where.text), passed(out.Stdout), passed(out.Stderr)
		program.WaitDelay = time.Millisecond
		err := program.Run()
		switch {
		case ctx.Err() != nil:
			return sdk.ExecuteResult{}, ctx.Err()
		case timed.Err() != nil:
			return sdk.ExecuteResult{Status: sdk.StatusTimeout, ExitCode: 128 + 9}, nil
		case err != nil:
			return sdk.ExecuteResult{Status: sdk.StatusFailed, ExitCode: program.ProcessState.ExitCode()}, nil
		default:
			return sdk.ExecuteResult{Status: sdk.StatusSucceeded}, nil
		}
	}
}
