package opensandbox

import (
	"context"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
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
// the order in which it came. Commands in the background are known by it.
const bothStreams = "exec 2>&1 # in the background\n"

// passOn is the script of a shell that only makes one log of a program's output.
const passOn = bothStreams + `exec "$@"`

// request is the provider's form of it, without the directory.
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
	switch {
	case len(b.Argv) > 0 && b.Background:
		req.Argv = append([]string{"bash", "-c", passOn, "bash"}, b.Argv...)
	case len(b.Argv) > 0:
		req.Argv = b.Argv
	case b.Background:
		req.Argv = []string{"bash", "-c", bothStreams + b.Command}
	default:
		req.Argv = []string{"bash", "-c", b.Command}
	}
	return req, nil
}

var variable = regexp.MustCompile(`\$(\{[A-Za-z_][A-Za-z0-9_]*\}|[A-Za-z_][A-Za-z0-9_]*)`)

// maxCwd bounds the directory of a command and what stands for it, in bytes: Linux knows no
// longer paths.
const maxCwd = 4096

var errLongCwd = refused("cwd", "must have at most %d bytes, also with the values of its variables", maxCwd)

// directoryWord is a directory as a word of the shell in which variables and the home
// directory stand for their values and nothing else does. It is empty if there are none.
func directoryWord(cwd string) string {
	home, rest := "", cwd
	if cwd == "~" || strings.HasPrefix(cwd, "~/") { // neither character may be quoted
		home, rest = cwd[:min(len(cwd), 2)], cwd[min(len(cwd), 2):]
	}
	names := variable.FindAllStringIndex(rest, -1)
	if home == "" && names == nil {
		return ""
	}
	var word strings.Builder
	word.WriteString(home)
	from := 0
	for _, at := range names {
		// The shell ends at a name that nobody defines.
		fmt.Fprintf(&word, `%s"${%s?}"`, quotedPart(rest[from:at[0]]), strings.Trim(rest[at[0]:at[1]], "${}"))
		from = at[1]
	}
	word.WriteString(quotedPart(rest[from:]))
	return word.String()
}

// quotedPart is a part of a word, which may be empty.
func quotedPart(text string) string {
	if text == "" {
		return ""
	}
	return frontdoor.Quoted(text)
}

// resolveCwd finds out what the directory of a command is. Its variables may be those of
// the command, of the sandbox, or the system's, which a shell in the sandbox knows.
func resolveCwd(ctx context.Context, commands lending.Commands, cwd string, envs map[string]string) (string, error) {
	if len(cwd) > maxCwd {
		return "", errLongCwd
	}
	word := directoryWord(cwd)
	if word == "" {
		return cwd, nil
	}
	command, output, err := commands.Run(ctx, sdk.CommandRequest{Argv: []string{"bash", "-c", "printf %s " + word}, Env: envs}, nil)
	switch {
	case err != nil:
		return "", err
	case command.State == sdk.CommandFailed:
		return "", refused("cwd", "names a variable that neither envs nor the sandbox defines")
	case len(output.Stdout.Bytes) > maxCwd || output.Truncated:
		return "", errLongCwd
	case command.State != sdk.CommandSucceeded:
		return "", sdk.Errorf(sdk.CodeUnavailable, "what cwd stands for could not be found out")
	}
	return string(output.Stdout.Bytes), nil
}

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
	info, err := d.sandbox(r.Context(), c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	to := newEventStream(w)
	defer to.close()
	err = lending.WithCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		cwd, err := resolveCwd(ctx, commands, body.Cwd, body.Envs)
		if err != nil {
			return err
		}
		req.Cwd = cwd
		// Nobody waits for it as for an execution: OpenSandbox's clients set a limit if they
		// want one, and the end of the sandbox is one anyhow.
		command, err := commands.Start(ctx, req, lending.StartOptions{})
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

// errorOutputLost is the name of the error of what has ended well, but for some of its
// output, which the client does not get.
const errorOutputLost = "OutputLostError"

// heardCommand makes events of what a command prints. A command never waits for its
// reader: of what it has printed the broker keeps the last limits.output bytes of each
// stream, and whoever reads more slowly has gaps.
type heardCommand struct {
	streams [2]*lines
	next    [2]int64 // offset of the byte after the last one that came
	lost    int64    // bytes that did not
}

func newHeardCommand(send func(event) error) *heardCommand {
	return &heardCommand{streams: [2]*lines{{kind: eventStdout, send: send}, {kind: eventStderr, send: send}}}
}

// take takes a piece of output.
func (h *heardCommand) take(piece sdk.CommandOutput) error {
	i := 0
	if piece.Stream == sdk.Stderr {
		i = 1
	}
	if err := h.skip(i, piece.Offset); err != nil {
		return err
	}
	h.next[i] += int64(len(piece.Data))
	return h.streams[i].write(piece.Data)
}

// skip goes to an offset. What is missing before it ends a line: its halves are none.
func (h *heardCommand) skip(i int, offset int64) error {
	if offset <= h.next[i] {
		return nil
	}
	h.lost += offset - h.next[i]
	h.next[i] = offset
	return h.streams[i].end()
}

// end sends what was held back of the output of a command that has ended.
func (h *heardCommand) end(ended sdk.Command) error {
	for i, total := range []int64{ended.StdoutBytes, ended.StderrBytes} {
		if err := h.skip(i, total); err != nil {
			return err
		}
		if err := h.streams[i].end(); err != nil {
			return err
		}
	}
	return nil
}

// followCommand tells what a command prints, and how it ends.
func followCommand(ctx context.Context, commands lending.Commands, id string, to *eventStream) error {
	output := newHeardCommand(func(e event) error { return unheard(to.send(ctx, e)) })
	ended, err := commands.Follow(ctx, id, output.take)
	if err == nil {
		err = output.end(ended)
	}
	if err != nil {
		return err
	}
	var lost []string
	if output.lost > 0 {
		lost = []string{fmt.Sprintf("%d bytes of the output are missing: the command printed faster than they were read.", output.lost)}
	}
	if ended.State != sdk.CommandSucceeded {
		if ended.State == sdk.CommandTimeout {
			lost = append(lost, "The command was ended at its time limit.")
		}
		return unheard(to.failCommand(ctx, ended.ExitCode, lost...))
	}
	if lost != nil {
		return unheard(to.fail(ctx, errorOutputLost, lost[0], exitStatus(0), lost[0]))
	}
	return unheard(to.complete(ctx))
}

// interruptCommand kills a command with all that it has started.
func (d execd) interruptCommand(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	id, err := idOf(c.RawQuery)
	if err != nil {
		return 0, rest.None{}, err
	}
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusOK, rest.None{}, lending.WithCommands(ctx, d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		return commands.Kill(ctx, id)
	})
}

// idOf is the id that a query must have.
func idOf(rawQuery string) (string, error) {
	query, err := frontdoor.Query(rawQuery)
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
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
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
				state.Error = exitStatus(command.ExitCode)
			}
		}
		return nil
	})
	return http.StatusOK, state, err
}

// contentOf is the command as its caller wrote it. Of a program with arguments, nobody
// can tell bash -c from a command for the shell, which is the same.
func contentOf(command sdk.Command) string {
	argv := command.Argv
	switch {
	case inBackground(command) && argv[2] == passOn && len(argv) > 4:
		return strings.Join(argv[4:], " ")
	case len(argv) == 3 && argv[0] == "bash" && argv[1] == "-c":
		return strings.TrimPrefix(argv[2], bothStreams)
	default:
		return strings.Join(argv, " ")
	}
}

// inBackground reports whether a command has one log.
func inBackground(command sdk.Command) bool {
	argv := command.Argv
	return len(argv) > 2 && argv[0] == "bash" && argv[1] == "-c" && strings.HasPrefix(argv[2], bothStreams)
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
	info, err := d.sandbox(r.Context(), c.Tenant, c.Path["id"])
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
