package providertest_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

func TestWrongArgumentsAreFound(t *testing.T) {
	const javaScript = "arguments/javascript/an exported main"
	checkMutations(t, map[string]mutation{
		"a result of text": {
			among: "arguments/python/(main gets|an async)", fails: []string{"arguments/python/main gets the arguments and its return value is the result", "arguments/python/an asynchronous main is awaited"},
			breaks: answering(func(r *sdk.ExecuteResult) {
				if r.Result != nil {
					r.Result, _ = json.Marshal(string(r.Result))
				}
			}),
		},
		"a result that is printed": {
			among: "arguments/python/(main gets|what main)", fails: []string{"arguments/python/main gets the arguments and its return value is the result", "arguments/python/what main prints is not its result"},
			breaks: func(b *broken) {
				b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					result, err := b.Provider.Execute(ctx, req, out)
					return result, errors.Join(err, out.Stdout(append(result.Result, '\n')))
				}
			},
		},
		"the last line printed as the result": {among: "arguments/python/what main", fails: []string{" prints is not its result"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				var kept bytes.Buffer
				result, err := b.Provider.Execute(ctx, req, outputs{Output: out, stdout: func(p []byte) error { kept.Write(p); return out.Stdout(p) }})
				if line := bytes.TrimSpace(kept.Bytes()); json.Valid(line) {
					result.Result = line
				}
				return result, err
			}
		}},
		"no arguments as empty ones": {
			among: "arguments/python/", fails: []string{"a main that the code calls is not called again", "a main behind a guard is not called again"},
			breaks: asking(func(r *sdk.ExecuteRequest) {
				if r.Arguments == nil {
					r.Arguments = json.RawMessage("{}")
				}
			}),
		},
		"empty arguments as none": {among: "arguments/python/", fails: []string{"empty arguments are arguments"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			if string(r.Arguments) == "{}" {
				r.Arguments = nil
			}
		})},
		"text that a shell has seen": {among: "arguments/python/", fails: []string{"text that could be code arrives as text"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			if r.Arguments != nil {
				r.Arguments = bytes.ReplaceAll(r.Arguments, []byte("$HOME"), []byte("/root"))
			}
		})},
		"little data only": {among: "arguments/python/", fails: []string{"much data arrives and returns"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if len(req.Arguments) > 128<<10 {
					return sdk.ExecuteResult{}, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "are too long for a command line")
				}
				return b.Provider.Execute(ctx, req, out)
			}
		}},
		"a result of whatever there is": {among: "arguments/python/a main that returns no", fails: []string{" JSON fails and says why"}, breaks: answering(func(r *sdk.ExecuteResult) {
			if r.Status == sdk.StatusFailed {
				r.Status, r.ExitCode, r.Result = sdk.StatusSucceeded, 0, json.RawMessage(`"<object>"`)
			}
		})},
		"failures of main that are errors": {
			among: "arguments/python/(code without|a main with|a main that raises)",
			fails: []string{"arguments/python/code without main fails when it gets arguments", "arguments/python/a main with other parameters fails", "arguments/python/a main that raises fails and says why"},
			breaks: func(b *broken) {
				b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					result, err := b.Provider.Execute(ctx, req, out)
					if result.Status == sdk.StatusFailed {
						return result, sdk.FieldErrorf(sdk.CodeInvalidRequest, "arguments", "do not fit")
					}
					return result, err
				}
			},
		},
		"an exit code of its own": {among: "arguments/python/", fails: []string{"a main that exits fails with its exit code"}, breaks: answering(func(r *sdk.ExecuteResult) { r.ExitCode = min(r.ExitCode, 1) })},
		"arguments for bash":      {among: "arguments/bash/", fails: []string{"a language without main refuses arguments"}, breaks: asking(func(r *sdk.ExecuteRequest) { r.Arguments = nil })},
		"nothing instead of null": {among: "arguments/python/", fails: []string{"a main that returns nothing has the result null", "values arrive and return unchanged"}, breaks: answering(func(r *sdk.ExecuteResult) {
			if string(r.Result) == "null" {
				r.Result = nil
			}
		})},
		"exports that nobody looks at": {among: javaScript, fails: []string{" is called where there is no other"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			r.Code = strings.NewReplacer("module.exports =", "globalThis.ignored =", "exports.main", "globalThis.ignored").Replace(r.Code)
		})},
		"modules whose exports nobody looks at": {among: javaScript, fails: []string{" of an ES module is called"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			r.Code = strings.NewReplacer("export default", "export const ignored =", "export {sum as main}", "export {sum}").Replace(r.Code)
		})},
		"exports before all": {among: javaScript, fails: []string{" takes the place of none at the top level"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			r.Code = strings.Replace(r.Code, "module.exports = {main: () =>", "main = (() =>", 1)
			r.Code = strings.Replace(r.Code, "'the other one'}", "'the other one')", 1)
		})},
		"a main that is called by its arguments only": {among: "arguments/python/without arguments", fails: []string{" a main that nobody calls is called"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			r.Code = strings.Replace(r.Code, "def main()", "def main(*rest, needed)", 1)
		})},
	})
}

func TestWrongErrorsAreFound(t *testing.T) {
	failing := func(change func(b *broken, err error) error) func(*broken) {
		return func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := b.Provider.Execute(ctx, req, out)
				if err != nil {
					err = change(b, err)
				}
				return result, err
			}
		}
	}
	checkMutations(t, map[string]mutation{
		"errors without codes": {
			among: "errors/", fails: []string{"an unknown instance is not found", "names that no instance can have are not found", "the beginning of an ID is not the instance", "a language that it does not offer is refused", "an unknown context is not found", "errors have codes"},
			breaks: failing(func(_ *broken, err error) error { return errors.New(err.Error()) }),
		},
		"unknown instances as a bad request": {
			among: "errors/", fails: []string{"an unknown instance is not found", "the beginning of an ID is not the instance", "an unknown context is not found"},
			breaks: failing(func(*broken, error) error { return sdk.Errorf(sdk.CodeInvalidRequest, "no") }),
		},
		"prefixes as IDs": {among: "errors/", fails: []string{"the beginning of an ID is not the instance"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				list, err := b.Provider.List(ctx)
				for _, i := range list {
					if len(req.InstanceID) > 3 && strings.HasPrefix(i.ID, req.InstanceID) {
						req.InstanceID = i.ID
					}
				}
				result, executeErr := b.Provider.Execute(ctx, req, out)
				return result, errors.Join(err, executeErr)
			}
		}},
		"bash for every language": {among: "errors/", fails: []string{"a language that it does not offer is refused"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			if r.Language == "no-such-language" {
				r.Language = sdk.Bash
			}
		})},
		"contexts that do not matter": {among: "errors/", fails: []string{"an unknown context is not found"}, breaks: asking(func(r *sdk.ExecuteRequest) { r.ContextID = "" })},
		"paths in errors": {among: "errors/", fails: []string{"errors name no path of the host"}, breaks: func(b *broken) {
			dir := ""
			b.configure = func(req sdk.ConfigureRequest) error { dir = req.StateDir; return nil }
			retelling(func(e *sdk.Error) { e.Message = "open " + dir + "/instance: no such directory" })(b)
		}},
	})
}

func TestWrongIsolationIsFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"one directory for all": {
			among: "isolation/a (file|new)", fails: []string{"isolation/a file of one instance is not in another", "isolation/a new instance has nothing of one that was destroyed"},
			breaks: func(b *broken) {
				var first string
				b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
					made, err := b.Provider.Create(ctx, req)
					if first == "" {
						hidden := req
						hidden.IdempotencyKey = "hidden"
						kept, _ := b.Provider.Create(ctx, hidden)
						first = kept.ID
					}
					return made, err
				}
				b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
					req.InstanceID = first
					return b.Provider.Execute(ctx, req, out)
				}
			},
		},
		"variables of all instances": {among: "isolation/variables", fails: []string{" of one instance are not in another"}, breaks: func(b *broken) {
			var mu sync.Mutex
			all := map[string]string{}
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				mu.Lock()
				defer mu.Unlock()
				for name, value := range req.Env {
					all[name] = value
				}
				req.Env = all
				return b.Provider.Create(ctx, req)
			}
		}},
		"the plugin's variables": {among: "isolation/", fails: []string{"code sees no variables of the plugin"}, breaks: asking(func(r *sdk.ExecuteRequest) {
			r.Env = map[string]string{}
			for _, variable := range os.Environ() {
				name, value, _ := strings.Cut(variable, "=")
				r.Env[name] = value
			}
		})},
		"a secret in the environment": {among: "isolation/", fails: []string{"code sees no secrets of the settings"}, breaks: func(b *broken) {
			token := ""
			b.configure = func(req sdk.ConfigureRequest) error { token = req.Settings["token"].(string); return nil }
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				req.Env = map[string]string{"TOKEN": token}
				return b.Provider.Execute(ctx, req, out)
			}
		}},
	})
}

func TestWrongEndsAndStartsAreFound(t *testing.T) {
	over := make(chan struct{})
	var ending sync.WaitGroup
	t.Cleanup(func() { close(over); ending.Wait() })
	checkMutations(t, map[string]mutation{
		"no end": {among: "process/it ends in order", patience: 0.1, fails: []string{"", " with an instance alive", " while code runs", " after all other cases"}, breaks: func(b *broken) {
			b.close = func(ctx context.Context) error {
				ending.Add(1)
				defer ending.Done()
				<-over
				return b.Provider.Close(context.WithoutCancel(ctx))
			}
		}},
		"instances that are listed and gone": {among: "process/after a restart List", fails: []string{" and Execute agree"}, breaks: func(b *broken) {
			made := map[string]bool{}
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				i, err := b.Provider.Create(ctx, req)
				made[i.ID] = true
				return i, err
			}
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if !made[req.InstanceID] {
					return sdk.ExecuteResult{}, sdk.Errorf(sdk.CodeNotFound, "no such instance")
				}
				return b.Provider.Execute(ctx, req, out)
			}
		}},
		"instances that are there and not listed": {among: "process/after a restart List", fails: []string{" and Execute agree"}, breaks: func(b *broken) {
			b.list = func([]sdk.Instance) []sdk.Instance { return nil }
		}},
		"a state directory that is used once": {
			among: "process/after a restart", fails: []string{" List and Execute agree", " it makes instances", " old instances can be destroyed"},
			breaks: func(b *broken) {
				b.configure = func(req sdk.ConfigureRequest) error {
					lock, err := os.OpenFile(req.StateDir+"/lock", os.O_CREATE|os.O_EXCL, 0o600)
					if err != nil {
						return sdk.Errorf(sdk.CodeUnavailable, "another process uses the state directory")
					}
					return lock.Close()
				}
			},
		},
		"old instances that are not found": {among: "process/after a restart old", fails: []string{" instances can be destroyed"}, breaks: func(b *broken) {
			made := map[string]bool{}
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				i, err := b.Provider.Create(ctx, req)
				made[i.ID] = true
				return i, err
			}
			b.destroy = func(ctx context.Context, id string) error {
				if !made[id] {
					return sdk.Errorf(sdk.CodeNotFound, "no such instance")
				}
				return b.Provider.Destroy(ctx, id)
			}
		}},
	})
}

func TestAProviderThatDoesNotNoticeItsBackEndIsFound(t *testing.T) {
	checkMutations(t, map[string]mutation{
		"always healthy": {
			among: "backend/", patience: 0.3, fails: []string{"it is not healthy without its back end, and says why"},
			breaks: func(b *broken) {
				b.health = func(h sdk.Health) (sdk.Health, error) { return sdk.Health{Healthy: true}, nil }
			},
		},
		"not healthy without a reason": {among: "backend/", fails: []string{"it is not healthy without its back end, and says why"}, breaks: func(b *broken) {
			b.health = func(h sdk.Health) (sdk.Health, error) { h.Reason = ""; return h, nil }
		}},
		"never healthy again": {among: "backend/", patience: 0.1, fails: []string{"it is healthy again when its back end is back"}, breaks: func(b *broken) {
			var broken bool
			b.health = func(h sdk.Health) (sdk.Health, error) {
				if broken = broken || !h.Healthy; broken {
					return sdk.Health{Reason: "it was away"}, nil
				}
				return h, nil
			}
		}},
		"errors without codes": {among: "backend/", fails: []string{"Create without its back end is refused in time"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				made, err := b.Provider.Create(ctx, req)
				if err != nil {
					return made, errors.New("connection refused")
				}
				return made, nil
			}
		}},
		"an instance without a back end": {among: "backend/Execute", patience: 0.3, fails: []string{" without its back end ends in time"}, breaks: func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := b.Provider.Execute(ctx, req, out)
				if err != nil {
					<-ctx.Done() // it waits for the answer that does not come
				}
				return result, err
			}
		}},
		"a list that waits":                  {among: "backend/Destroy", fails: []string{" and List without its back end end in time"}, patience: 0.3, wraps: func(p *local.Provider) sdk.Provider { return waitingList{p} }},
		"a configuration without a back end": {among: "backend/without", fails: []string{" its back end it refuses its configuration in time"}, wraps: func(p *local.Provider) sdk.Provider { return blindStart{p} }},
	})
}

// waitingList does not answer List without its back end.
type waitingList struct{ *local.Provider }

func (w waitingList) List(ctx context.Context) ([]sdk.Instance, error) {
	if health, err := w.Health(ctx); err != nil || !health.Healthy {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	return w.Provider.List(ctx)
}

// blindStart takes any configuration and is healthy.
type blindStart struct{ *local.Provider }

func (blindStart) Configure(context.Context, sdk.ConfigureRequest) error { return nil }
func (blindStart) Health(context.Context) (sdk.Health, error)            { return sdk.Health{Healthy: true}, nil }
