package providertest_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"strings"
	"sync"
	"testing"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/providertest/internal/local"
)

// rewritten are variables after something has been done to each value.
func rewritten(env map[string]string, change func(string) string) map[string]string {
	changed := map[string]string{}
	for name, value := range env {
		changed[name] = change(value)
	}
	return changed
}

func TestWrongVariablesAreFound(t *testing.T) {
	const (
		code    = "any text arrives, of the instance and of the execution"
		inside  = "any text arrives in a context, of the instance, the context and the execution"
		command = "variables/any text arrives in a command, of the instance and of the command"
		group   = "variables/(python/any|any)"
		python  = "variables/python/"
	)
	unescaped := func(value string) string { return strings.NewReplacer(`\t`, "\t", `\n`, "\n").Replace(value) }
	executing := func(change func(*sdk.ExecuteRequest)) func(*local.Provider) sdk.Provider {
		return changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				change(&req)
				return c.Provider.Execute(ctx, req, out)
			}
		})
	}
	creating := func(change func(string) string) func(*broken) {
		return func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				req.Env = rewritten(req.Env, change)
				return b.Provider.Create(ctx, req)
			}
		}
	}
	// What a provider may do with an execution that has variables.
	showing := func(show func(*capable, sdk.ExecuteRequest, sdk.Output, *sdk.ExecuteResult) error) func(*local.Provider) sdk.Provider {
		return changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				result, err := c.Provider.Execute(ctx, req, out)
				if len(req.Env) > 0 {
					err = errors.Join(err, show(c, req, out, &result))
				}
				return result, err
			}
		})
	}
	const word = "PROVIDERTEST_EXECUTION_QUOTES"
	hidden := []string{python + "code gets them, and nothing shows them", python + "a context gets them, and nothing shows them"}
	checkMutations(t, map[string]mutation{
		"backslashes of the instance unescaped": {among: group, fails: []string{python + code, python + inside, command}, breaks: creating(unescaped)},
		"lines of the instance cut": {among: group, fails: []string{python + code, python + inside, command}, breaks: creating(func(value string) string {
			first, _, _ := strings.Cut(value, "\n")
			return first
		})},
		"quotes of the execution lost": {among: group, fails: []string{python + code, python + inside}, wraps: executing(func(req *sdk.ExecuteRequest) {
			req.Env = rewritten(req.Env, func(value string) string { return strings.ReplaceAll(value, "'", "") })
		})},
		"dollars of the context expanded": {among: group, fails: []string{python + inside}, wraps: changing(func(c *capable) {
			c.createContext = func(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
				req.Env = rewritten(req.Env, func(value string) string { return strings.ReplaceAll(value, "$HOME", "/root") })
				return c.Provider.CreateContext(ctx, req)
			}
		})},
		"empty values of the command left out": {among: group, fails: []string{command}, wraps: changing(func(c *capable) {
			c.start = func(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
				delete(req.Env, "PROVIDERTEST_COMMAND_EMPTY")
				return c.Provider.StartCommand(ctx, req)
			}
		})},
		"a variable too many": {among: group, fails: []string{python + code, python + inside}, wraps: executing(func(req *sdk.ExecuteRequest) {
			req.Env = rewritten(req.Env, func(value string) string { return value })
			if req.Env["PROVIDERTEST_OF_ALL"] != "" {
				req.Env["PROVIDERTEST_OF_THE_PROVIDER"] = "x"
			}
		})},
		"an artifact of the last variable": {among: python + "(code|a context)", fails: hidden, wraps: showing(func(_ *capable, req sdk.ExecuteRequest, out sdk.Output, _ *sdk.ExecuteResult) error {
			return out.Artifact(sdk.Artifact{Kind: sdk.ArtifactResult, MIMEType: "text/plain", Data: []byte(req.Env[word]), Group: 1})
		})},
		"an error that repeats what it could not read": {among: python + "(code|a context)", fails: hidden, wraps: showing(func(_ *capable, req sdk.ExecuteRequest, out sdk.Output, result *sdk.ExecuteResult) error {
			if result.Status == sdk.StatusSucceeded {
				return nil
			}
			return out.Stderr(fmt.Appendf(nil, "%q", req.Env))
		})},
		"a detail with variables": {among: python + "(code|a context)", fails: hidden, wraps: showing(func(_ *capable, req sdk.ExecuteRequest, _ sdk.Output, result *sdk.ExecuteResult) error {
			result.Detail = req.Env[word]
			return nil
		})},
		"variables among the labels": {among: python + "code", fails: []string{" gets them, and nothing shows them"}, breaks: func(b *broken) {
			b.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				made, err := b.Provider.Create(ctx, req)
				made.Metadata = map[string]string{"environment": req.Env["PROVIDERTEST_INSTANCE_QUOTES"]}
				return made, err
			}
		}},
	})
}

func TestWrongLongVariablesAreFound(t *testing.T) {
	const (
		group   = "variables/(python/long|long)"
		code    = "variables/python/long values arrive whole, of the instance and of the execution"
		inside  = "variables/python/long values arrive whole in a context, of the instance, the context and the execution"
		command = "variables/long values arrive whole in a command, of the instance and of the command"
	)
	// What is done to the variables of an instance, an execution, a context and a command.
	type ways struct{ instance, execution, context, command func(map[string]string) error }
	with := func(w ways) func(*local.Provider) sdk.Provider {
		none := func(map[string]string) error { return nil }
		for _, way := range []*func(map[string]string) error{&w.instance, &w.execution, &w.context, &w.command} {
			if *way == nil {
				*way = none
			}
		}
		return changing(func(c *capable) {
			c.create = func(ctx context.Context, req sdk.CreateRequest) (sdk.Instance, error) {
				if err := w.instance(req.Env); err != nil {
					return sdk.Instance{}, err
				}
				return c.Provider.Create(ctx, req)
			}
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if err := w.execution(req.Env); err != nil {
					return sdk.ExecuteResult{}, err
				}
				return c.Provider.Execute(ctx, req, out)
			}
			c.createContext = func(ctx context.Context, req sdk.CreateContextRequest) (sdk.CodeContext, error) {
				if err := w.context(req.Env); err != nil {
					return sdk.CodeContext{}, err
				}
				return c.Provider.CreateContext(ctx, req)
			}
			c.start = func(ctx context.Context, req sdk.CommandRequest) (sdk.Command, error) {
				if err := w.command(req.Env); err != nil {
					return sdk.Command{}, err
				}
				return c.Provider.StartCommand(ctx, req)
			}
		})
	}
	each := func(change func(string) string) func(map[string]string) error {
		return func(env map[string]string) error {
			maps.Copy(env, rewritten(env, change))
			return nil
		}
	}
	cut := each(func(value string) string { return value[:min(len(value), 64<<10)] })
	// A piece in the middle that comes twice, in the place of another.
	repeats := each(func(value string) string {
		if len(value) < 64<<10 {
			return value
		}
		return value[:32<<10] + value[:16<<10] + value[48<<10:]
	})
	refuses := func(most int, code sdk.Code, field string) func(map[string]string) error {
		return func(env map[string]string) error {
			for _, value := range env {
				if len(value) > most {
					return sdk.FieldErrorf(code, field, "is longer than %d bytes", most)
				}
			}
			return nil
		}
	}
	everywhere := func(way func(map[string]string) error) ways { return ways{way, way, way, way} }
	checkMutations(t, map[string]mutation{
		"those of the instance cut":             {among: group, fails: []string{code, inside, command}, wraps: with(ways{instance: cut})},
		"those of the execution cut":            {among: group, fails: []string{code, inside}, wraps: with(ways{execution: cut})},
		"those of the context cut":              {among: group, fails: []string{inside}, wraps: with(ways{context: cut})},
		"those of the command cut":              {among: group, fails: []string{command}, wraps: with(ways{command: cut})},
		"a piece comes twice":                   {among: group, fails: []string{code, inside, command}, wraps: with(everywhere(repeats))},
		"what is promised is refused":           {among: group, fails: []string{code, inside, command}, wraps: with(everywhere(refuses(16<<10, sdk.CodeInvalidRequest, "env")))},
		"a refusal that names nothing":          {among: group, fails: []string{code, inside, command}, wraps: with(everywhere(refuses(64<<10, sdk.CodeInvalidRequest, "")))},
		"a refusal of a context names nothing":  {among: group, fails: []string{inside}, wraps: with(ways{context: refuses(64<<10, sdk.CodeInvalidRequest, "")})},
		"a refusal that is somebody else's":     {among: group, fails: []string{code, inside, command}, wraps: with(everywhere(refuses(64<<10, sdk.CodeUnavailable, "env")))},
		"no mistake: a refusal that says what":  {among: group, wraps: with(everywhere(refuses(64<<10, sdk.CodeInvalidRequest, "env.PROVIDERTEST_OF_ALL")))},
		"no mistake: a context that refuses":    {among: group, wraps: with(ways{context: refuses(32<<10, sdk.CodeInvalidRequest, "env")})},
		"no mistake: an execution that refuses": {among: group, wraps: with(ways{execution: refuses(32<<10, sdk.CodeInvalidRequest, "env")})},
	})
}

func TestWrongPatternsAreFound(t *testing.T) {
	const group = "artifacts/bash/"
	asking := func(change func(string) string) func(*local.Provider) sdk.Provider {
		return changing(func(c *capable) {
			c.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				if req.Artifacts != nil {
					limits := *req.Artifacts
					limits.Files = nil
					for _, name := range req.Artifacts.Files {
						limits.Files = append(limits.Files, change(name))
					}
					req.Artifacts = &limits
				}
				return c.Provider.Execute(ctx, req, out)
			}
		})
	}
	const byPattern, inDirectories = "files that match a pattern come back", "a pattern reaches into directories"
	checkMutations(t, map[string]mutation{
		"patterns as names": {among: group, fails: []string{byPattern, inDirectories}, wraps: asking(func(name string) string {
			return strings.NewReplacer("*", "[*", "?", "[?").Replace(name)
		})},
		"patterns of one directory": {among: group, fails: []string{inDirectories}, wraps: asking(func(name string) string { return strings.ReplaceAll(name, "**", "*") })},
		"patterns that match all": {among: group, fails: []string{byPattern, inDirectories, "a pattern that matches nothing is no failure"}, wraps: asking(func(name string) string {
			if strings.ContainsAny(name, "*?") {
				return "**"
			}
			return name
		})},
	})
}

// withoutDirectory is what a provider that makes no artifacts/ gives code of Python.
const withoutDirectory = "import os\nif os.path.isdir('artifacts') and not os.listdir('artifacts'): os.rmdir('artifacts')\n"

func TestAWrongDirectoryOfArtifactsIsFound(t *testing.T) {
	const group = "artifacts/python/the directory"
	running := func(before func(instanceID string) string) func(*broken) {
		return func(b *broken) {
			b.execute = func(ctx context.Context, req sdk.ExecuteRequest, out sdk.Output) (sdk.ExecuteResult, error) {
				req.Code = before(req.InstanceID) + req.Code
				return b.Provider.Execute(ctx, req, out)
			}
		}
	}
	var known sync.Map
	checkMutations(t, map[string]mutation{
		"none": {among: group, fails: []string{" is there before the code", " is there again after code has removed it"}, breaks: running(func(string) string { return withoutDirectory })},
		"one that is the instance's": {among: group, fails: []string{" is there again after code has removed it"}, breaks: running(func(instanceID string) string {
			if _, again := known.LoadOrStore(instanceID, true); again {
				return withoutDirectory
			}
			return ""
		})},
		"one whatever is there": {among: group, fails: []string{" takes the place of no file"}, breaks: running(func(string) string {
			return "import os\nif os.path.isfile('artifacts'): os.remove('artifacts'); os.mkdir('artifacts')\n"
		})},
	})
}

func TestWrongOffsetsAreFound(t *testing.T) {
	const group = "commands/(an offset|its end)"
	const behind, awaited, ahead = "commands/an offset behind the end gives nothing, of one that has ended", "commands/its end is waited for from an offset far behind", "commands/an offset that is not reached yet is waited for"
	reading := func(change func(context.Context, *capable, sdk.ReadCommandRequest, func(sdk.CommandOutput) error) (sdk.Command, error)) func(*local.Provider) sdk.Provider {
		return changing(func(c *capable) {
			c.read = func(ctx context.Context, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
				return change(ctx, c, req, out)
			}
		})
	}
	checkMutations(t, map[string]mutation{
		"an offset that no file can have": {among: group, fails: []string{behind, awaited, ahead}, wraps: reading(func(ctx context.Context, c *capable, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
			if max(req.StdoutOffset, req.StderrOffset) == math.MaxInt64 {
				return sdk.Command{}, sdk.Errorf(sdk.CodeUnavailable, "invalid argument")
			}
			return c.Provider.ReadCommand(ctx, req, out)
		})},
		"the latest output for an offset behind the end": {among: group, fails: []string{behind, awaited, ahead}, wraps: reading(func(ctx context.Context, c *capable, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
			if req.StdoutOffset > 10 {
				req.StdoutOffset = 0
			}
			if req.StderrOffset > 10 {
				req.StderrOffset = 0
			}
			return c.Provider.ReadCommand(ctx, req, out)
		})},
		"an answer at once when nothing is left to read": {among: group, fails: []string{awaited, ahead}, wraps: reading(func(ctx context.Context, c *capable, req sdk.ReadCommandRequest, out func(sdk.CommandOutput) error) (sdk.Command, error) {
			if req.StdoutOffset > 0 {
				req.Follow = false
			}
			return c.Provider.ReadCommand(ctx, req, out)
		})},
	})
}
