package opensandbox

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registerCommands registers the routes of commands.
func (d execd) registerCommands(base string) {
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/command"}, d.runCommand)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/command", AnyQuery: true}, d.interruptCommand)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/command/status/{command}"}, d.commandStatus)
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/command/{command}/logs", AnyQuery: true}, d.commandLogs)
}

// commandBody is what starts a command.
type commandBody struct {
	Command    string            `json:"command"`
	Argv       []string          `json:"argv"`
	Cwd        string            `json:"cwd"`
	Background bool              `json:"background"`
	TimeoutMS  *int64            `json:"timeout"`
	UID        *int64            `json:"uid"`
	GID        *int64            `json:"gid"`
	Envs       map[string]string `json:"envs"`
}

// bothStreams is how a shell that runs in the background begins: its output is one log, in
// the order in which it came.
const bothStreams = "exec 2>&1\n"

// request is the provider's form of it.
func (b commandBody) request() (sdk.CommandRequest, error) {
	req := sdk.CommandRequest{Env: b.Envs}
	switch {
	case (b.Command == "") == (len(b.Argv) == 0):
		return req, refused("command", "or argv is required, and not both")
	case len(b.Argv) > 0 && b.Argv[0] == "":
		return req, refused("argv", "must name a program")
	case b.UID != nil || b.GID != nil:
		return req, refused("uid", "and gid are not served here: all programs of a sandbox have one user")
	case b.TimeoutMS != nil && (*b.TimeoutMS < 1 || *b.TimeoutMS > maxTimeout.Milliseconds()):
		return req, refused("timeout", "must be 1 at least, in milliseconds")
	case b.TimeoutMS != nil:
		req.Timeout = time.Duration(*b.TimeoutMS) * time.Millisecond
	}
	cwd, home, err := expandCwd(b.Cwd, b.Envs)
	if err != nil {
		return req, err
	}
	req.Cwd = cwd
	script := b.Command
	if len(b.Argv) > 0 && (b.Background || home != "") {
		script = `exec "$@"`
	}
	if home != "" {
		script = home + script
	}
	if b.Background {
		script = bothStreams + script
	}
	switch {
	case script == "":
		req.Argv = b.Argv
	case len(b.Argv) > 0:
		req.Argv = append([]string{"bash", "-c", script, "bash"}, b.Argv...)
	default:
		req.Argv = []string{"bash", "-c", script}
	}
	return req, nil
}

var variable = regexp.MustCompile(`\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)`)

// expandCwd expands what stands for something else in the directory of a command. The
// home directory is known by the shell alone: home is what that does first then.
func expandCwd(cwd string, envs map[string]string) (expanded, home string, err error) {
	expanded = variable.ReplaceAllStringFunc(cwd, func(name string) string {
		value, set := envs[strings.Trim(name, "${}")]
		if !set && err == nil {
			err = refused("cwd", "names a variable that is not among envs")
		}
		return value
	})
	if rest, ok := strings.CutPrefix(expanded, "~"); ok && (rest == "" || rest[0] == '/') {
		return "", "cd -- ~" + quoted(rest) + " || exit\n", err
	}
	return expanded, "", err
}

// quoted is a word of the shell.
func quoted(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// runCommand runs a command, and tells what it prints and how it ends.
func (d execd) runCommand(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	var body commandBody
	if err := readObject(c.Body, &body); err != nil {
		return err
	}
	req, err := body.request()
	if err != nil {
		return err
	}
	info, err := d.sandbox(c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	to := newEventStream(w)
	defer to.close()
	err = lending.WithCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		command, err := commands.Start(ctx, req, lending.StartOptions{WaitedFor: !body.Background})
		if err != nil {
			return err
		}
		if err := to.send(ctx, event{Type: eventInit, Text: command.ID}); err != nil {
			if !body.Background {
				_ = commands.Abandon(ctx, command.ID)
			}
			return lending.Unheard{Err: err}
		}
		if body.Background {
			return unheard(to.complete(ctx))
		}
		return followCommand(ctx, commands, command.ID, to)
	})
	return to.finish(r.Context(), err, c.RequestID)
}

func unheard(err error) error {
	if err != nil {
		return lending.Unheard{Err: err}
	}
	return nil
}

// followCommand tells what a command prints, and how it ends.
func followCommand(ctx context.Context, commands lending.Commands, id string, to *eventStream) error {
	send := func(e event) error { return unheard(to.send(ctx, e)) }
	stdout, stderr := &lines{kind: eventStdout, send: send}, &lines{kind: eventStderr, send: send}
	ended, err := commands.Follow(ctx, id, func(piece sdk.CommandOutput) error {
		if piece.Stream == sdk.Stderr {
			return stderr.write(piece.Data)
		}
		return stdout.write(piece.Data)
	})
	if err != nil {
		return err
	}
	for _, l := range []*lines{stdout, stderr} {
		if err := l.end(); err != nil {
			return err
		}
	}
	if ended.State == sdk.CommandSucceeded {
		return unheard(to.complete(ctx))
	}
	// The SDKs read the exit code from evalue.
	traceback := []string{fmt.Sprintf("exit status %d", ended.ExitCode)}
	if ended.State == sdk.CommandTimeout {
		traceback = append(traceback, "The command was ended at its time limit.")
	}
	return unheard(to.fail(ctx, "CommandExecError", strconv.Itoa(ended.ExitCode), traceback...))
}

// interruptCommand kills a command with all that it has started.
func (d execd) interruptCommand(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	id, err := idOf(c.RawQuery)
	if err != nil {
		return 0, rest.None{}, err
	}
	info, err := d.sandbox(c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusOK, rest.None{}, lending.WithCommands(ctx, d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		return commands.Kill(ctx, id)
	})
}

// idOf is the id that a query must have.
func idOf(rawQuery string) (string, error) {
	query, err := url.ParseQuery(rawQuery)
	if err != nil || query.Get("id") == "" {
		return "", refused("id", "is required in the query")
	}
	return query.Get("id"), nil
}

// commandState is what is known of a command.
type commandState struct {
	ID         string     `json:"id"`
	Content    string     `json:"content,omitempty"`
	Running    bool       `json:"running"`
	ExitCode   *int       `json:"exit_code,omitempty"`
	Error      string     `json:"error,omitempty"`
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at,omitempty"`
}

func (d execd) commandStatus(ctx context.Context, c rest.Call[rest.None]) (int, commandState, error) {
	info, err := d.sandbox(c.Tenant, c.Path["id"])
	if err != nil {
		return 0, commandState{}, err
	}
	var state commandState
	err = lending.WithCommands(ctx, d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		command, err := commands.Look(ctx, c.Path["command"])
		if err != nil {
			return err
		}
		state = commandState{ID: command.ID, Running: command.State == sdk.CommandRunning, StartedAt: command.StartedAt.UTC(), Content: contentOf(command)}
		if !state.Running {
			at := command.EndedAt.UTC()
			state.ExitCode, state.FinishedAt = &command.ExitCode, &at
			if command.State != sdk.CommandSucceeded {
				state.Error = fmt.Sprintf("exit status %d", command.ExitCode)
			}
		}
		return nil
	})
	return http.StatusOK, state, err
}

// contentOf is the command as its caller wrote it.
func contentOf(command sdk.Command) string {
	if len(command.Argv) == 3 && command.Argv[1] == "-c" {
		return strings.TrimPrefix(command.Argv[2], bothStreams)
	}
	return strings.Join(command.Argv, " ")
}

// inBackground reports whether a command has one log.
func inBackground(command sdk.Command) bool {
	return len(command.Argv) > 2 && strings.HasPrefix(command.Argv[2], bothStreams)
}

// headerCursor says where the next part of a log begins: how many bytes came before.
const headerCursor = "EXECD-COMMANDS-TAIL-CURSOR"

// logPart bounds what of a log is answered at once, in bytes.
const logPart = 1 << 20

// commandLogs answers with what a command in the background has printed since a cursor.
func (d execd) commandLogs(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	cursor := int64(0)
	if text := r.URL.Query().Get("cursor"); text != "" {
		var err error
		if cursor, err = strconv.ParseInt(text, 10, 64); err != nil || cursor < 0 {
			return refused("cursor", "must be what an earlier answer's header %s says", headerCursor)
		}
	}
	info, err := d.sandbox(c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	return lending.WithCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		id := c.Path["command"]
		command, output, err := commands.ReadPage(ctx, sdk.ReadCommandRequest{CommandID: id, StdoutOffset: cursor}, logPart)
		if err != nil {
			return err
		}
		if !inBackground(command) {
			return refused("command", "runs in the foreground, and its output was told to who has started it")
		}
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set(headerCursor, strconv.FormatInt(output.Stdout.Next(), 10))
		w.Header().Set("Content-Length", strconv.Itoa(len(output.Stdout.Bytes)))
		return unheard(lending.Send(w, strings.NewReader(string(output.Stdout.Bytes))))
	})
}

// readObject reads a body that must be an object. Fields that are not known are no
// mistake, as with OpenSandbox's own daemon; null is as good as absent.
func readObject(body []byte, into any) error {
	body = slices.Clone(body)
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(body, &fields); err != nil || fields == nil {
		return sdk.Errorf(sdk.CodeInvalidRequest, "The body must be a JSON object.")
	}
	if err := json.Unmarshal(body, into); err != nil {
		return sdk.Errorf(sdk.CodeInvalidRequest, "The body has a field that is not of the type that the API has for it.")
	}
	return nil
}
