package deerflow

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/keylock"
)

func (d *Door) registerShells(base string) {
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/shell/exec"}, d.shellExec)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/shell/sessions/create"}, d.createShell)
	rest.Stream(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/shell/sessions/{session}"}, d.deleteShell)
}

// shells are programs that read their commands from standard input, one for each session of
// a sandbox: what one command changes, the next one finds. What is kept here of them can be
// found out anew (findShell).
type shells struct {
	locks keylock.Locks[shellKey] // held while a command is waited for
	mu    sync.Mutex
	known map[shellKey]shell
}

type shellKey struct{ instance, session string }

// shell is a program that was started.
type shell struct {
	command string
	// offset of the first byte of its output that nobody has seen.
	offset int64
	// busy says that a command goes on in it for which nobody waits, as far as is known.
	busy bool
	// nonce of the marks of its last command, empty where another process has sent that, and
	// code what that has ended with.
	nonce string
	code  int
}

// maxShells bounds what is kept of shells, and maxSessions those of one sandbox.
const (
	maxShells   = 1 << 14
	maxSessions = 16
)

func (s *shells) find(key shellKey) (shell, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	found, ok := s.known[key]
	return found, ok
}

func (s *shells) keep(key shellKey, found shell) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known == nil {
		s.known = map[shellKey]shell{}
	}
	if _, there := s.known[key]; !there && len(s.known) >= maxShells {
		for other := range s.known {
			delete(s.known, other)
			break
		}
	}
	s.known[key] = found
}

func (s *shells) forget(key shellKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.known, key)
}

const (
	// defaultSession is that of commands whose client names none.
	defaultSession = "default"
	// shellMark is among the arguments of a shell, before the name of its session.
	shellMark = "deerflow-shell"
)

var sessionForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$`)

// shellStart is the program of a shell until it reads commands. What it prints comes in one
// stream, as on a terminal, and descriptor 8 says where a command has ended, wherever its
// output goes.
const shellStart = `exec 2>&1 8>&1
cd ` + workspace + ` 2>/dev/null
exec bash --noprofile --norc -s`

// scriptOf is what the shell reads. The command cannot read what comes behind it, and eval
// takes a mistake of its syntax for its own. last is the exit code of the command before,
// which the shell has in $? then.
func scriptOf(command, nonce string, last int) string {
	if last != 0 {
		command = fmt.Sprintf("(exit %d); %s", last, command)
	}
	return `{ printf '\000` + nonce + ` ` + markBegin + `\0' >&8; } 2>/dev/null` + "\n" +
		"eval " + frontdoor.Quoted(command) + " </dev/null 8>&-\n" +
		`{ printf '\000` + nonce + ` %d\0' "$?" >&8; } 2>/dev/null` + "\n"
}

// Bounds of a command. DeerFlow says 600 s, which is as long as its client waits at all.
const (
	usualSilence = 600 * time.Second
	maxSilence   = 24 * time.Hour
	maxCommand   = 1 << 20
	// maxTruncated is how many bytes of the output a client gets who asks for less.
	maxTruncated = 30_000
)

type shellRequest struct {
	command, session string
	silence, limit   time.Duration
	truncate         bool
}

func readShellExec(body []byte) (shellRequest, error) {
	f, err := readFields(body)
	if err != nil {
		return shellRequest{}, err
	}
	req := shellRequest{session: defaultSession}
	silence, hard, old, async, dir := usualSilence.Seconds(), 0.0, 0.0, false, ""
	err = f.read(map[string]any{
		"command": &req.command, "id": &req.session, "no_change_timeout": &silence, "hard_timeout": &hard, "timeout": &old,
		"truncate": &req.truncate, "async_mode": &async, "exec_dir": &dir,
	}, "command")
	if err != nil {
		return shellRequest{}, err
	}
	if hard == 0 {
		hard = old
	}
	switch {
	case async:
		return req, refused("async_mode", "is not served here: start the program with & at its end")
	case dir != "":
		return req, refused("exec_dir", "is not served here: the shell keeps its directory, cd changes it")
	case !sessionForm.MatchString(req.session):
		return req, errSession
	case strings.ContainsRune(req.command, 0):
		return req, refused("command", "holds a NUL character, which no command can")
	case len(req.command) > maxCommand:
		return req, refused("command", "must have at most %d bytes; put more into a file", maxCommand)
	case !(silence > 0) || silence > maxSilence.Seconds():
		return req, refused("no_change_timeout", "must be more than 0 and at most %g seconds", maxSilence.Seconds())
	case !(hard >= 0) || hard > maxSilence.Seconds():
		return req, refused("hard_timeout", "must be at most %g seconds", maxSilence.Seconds())
	}
	req.silence, req.limit = early(silence), early(hard)
	return req, nil
}

var errSession = refused("id", "must be 1 to 64 of A-Z a-z 0-9 _ . - and begin with a letter or digit")

// early is when time is over that a client counts too, and gives up at its end: a hundredth
// before, 5 seconds at most.
func early(seconds float64) time.Duration {
	whole := time.Duration(seconds * float64(time.Second))
	return whole - min(whole/100, 5*time.Second)
}

// shellResult is what became of a command.
type shellResult struct {
	Session  string         `json:"session_id"`
	Command  string         `json:"command"`
	Status   string         `json:"status"`
	Output   string         `json:"output"`
	Console  []consoleEntry `json:"console"`
	ExitCode *int           `json:"exit_code"`
}

type consoleEntry struct {
	PS1     string `json:"ps1"`
	Command string `json:"command"`
	Output  string `json:"output"`
}

// What becomes of a command in a shell.
const (
	shellCompleted  = "completed"
	shellSilent     = "no_change_timeout"
	shellOvertime   = "hard_timeout"
	shellTerminated = "terminated"
)

// shellExec runs a command in a shell, and answers when it has ended, or has printed nothing
// for a while: then it goes on until the next command needs the shell.
func (d *Door) shellExec(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	req, err := readShellExec(c.Body)
	if err != nil {
		return err
	}
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return err
	}
	key := shellKey{info.ID.String(), req.session}
	release, err := d.shells.locks.Take(r.Context(), key)
	if err != nil {
		return err
	}
	defer release()
	result := shellResult{Session: req.session, Command: req.command}
	err = lending.WithCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		for again := true; ; again = false {
			found, err := d.readyShell(ctx, commands, key)
			if err != nil {
				return err
			}
			if err = d.runIn(ctx, commands, key, found, req, &result); again && errors.Is(err, errShellEnded) {
				continue // nothing of the command was run
			}
			return err
		}
	})
	if err != nil {
		return err
	}
	result.Console = []consoleEntry{{PS1: "$", Command: result.Command, Output: result.Output}}
	return answer(w, enveloped(result))
}

// answer sends one that is whole.
func answer(w http.ResponseWriter, with any) error {
	body, err := rest.EncodeJSON(with)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	_, _ = w.Write(body) // the client may be gone
	return nil
}

// readyShell returns a shell that waits for a command. One in which another command hangs is
// given up: DeerFlow has no call that would end that.
func (d *Door) readyShell(ctx context.Context, commands lending.Commands, key shellKey) (shell, error) {
	found, ok := d.shells.find(key)
	if !ok {
		var err error
		if found, ok, err = findShell(ctx, commands, key.session); err != nil {
			return shell{}, err
		}
	}
	if ok {
		command, err := commands.Look(ctx, found.command)
		switch {
		case isNotFound(err):
			ok = false
		case err != nil:
			return shell{}, err
		case command.State != sdk.CommandRunning:
			ok = false
		case found.busy:
			if found, err = settled(ctx, commands, command, found); err != nil {
				return shell{}, err
			}
		}
	}
	switch {
	case ok && !found.busy:
		return found, nil
	case ok:
		if err := endShell(ctx, commands, found.command); err != nil {
			return shell{}, err
		}
	}
	d.shells.forget(key)
	command, err := commands.Start(ctx, sdk.CommandRequest{Argv: []string{"bash", "-c", shellStart, shellMark, key.session}, Stdin: true}, lending.StartOptions{})
	if err != nil {
		return shell{}, err
	}
	found = shell{command: command.ID}
	d.shells.keep(key, found)
	return found, nil
}

// endTime is how long a shell that was killed may take to end.
const endTime = 10 * time.Second

// endShell ends a shell with all that runs in it, and waits until it has ended: nobody finds
// it then.
func endShell(ctx context.Context, commands lending.Commands, id string) error {
	if err := commands.Abandon(ctx, id); err != nil {
		return err
	}
	_, err := commands.Wait(ctx, id, endTime)
	if isNotFound(err) {
		return nil
	}
	return err
}

// findShell looks for the shell of a session that an earlier process of the broker has
// started.
func findShell(ctx context.Context, commands lending.Commands, session string) (found shell, ok bool, err error) {
	all, err := commands.List(ctx)
	if err != nil {
		return shell{}, false, err
	}
	shells := 0
	for _, command := range all {
		if name, is := sessionOf(command); is && command.State == sdk.CommandRunning {
			if shells++; name == session {
				return shell{command: command.ID, offset: command.StdoutBytes, busy: true}, true, nil
			}
		}
	}
	if shells >= maxSessions {
		return shell{}, false, sdk.Errorf(sdk.CodeQuotaExceeded, "The sandbox has %d shell sessions, which is as many as it may. Delete one.", shells)
	}
	return shell{}, false, nil
}

// sessionOf is the session of a command that is a shell.
func sessionOf(command sdk.Command) (session string, is bool) {
	if argv := command.Argv; len(argv) == 5 && argv[3] == shellMark {
		return argv[4], true
	}
	return "", false
}

// settled finds out whether the command in a shell has ended meanwhile: the mark behind it is
// the last that was printed then. It is told as busy.
func settled(ctx context.Context, commands lending.Commands, command sdk.Command, found shell) (shell, error) {
	end := command.StdoutBytes
	var tail []byte
	_, err := commands.Read(ctx, sdk.ReadCommandRequest{CommandID: command.ID, StdoutOffset: max(0, end-int64(maxMark))}, func(piece sdk.CommandOutput) error {
		tail = append(tail, piece.Data...)
		end = piece.Offset + int64(len(piece.Data))
		tail = tail[max(0, len(tail)-maxMark):]
		return nil
	})
	if err != nil {
		return shell{}, err
	}
	found.offset = end
	mark := markForm.FindSubmatch(tail)
	switch {
	case mark != nil:
		found.busy = found.nonce != "" && found.nonce != string(mark[1])
	case end == 0:
		found.busy = found.nonce != "" // it has read none
	}
	return found, nil
}

var (
	errMarked   = errors.New("the command has ended")
	errSilent   = errors.New("nothing was printed for a while")
	errOvertime = errors.New("the time of the command is over")
	// errShellEnded is for a shell that was there a moment before.
	errShellEnded = sdk.Errorf(sdk.CodeConflict, "The shell of the session ended before it had read the command. Try again.")
)

// runIn runs a command in a shell that waits for one.
func (d *Door) runIn(ctx context.Context, commands lending.Commands, key shellKey, in shell, req shellRequest, result *shellResult) error {
	var random [nonceBytes]byte
	_, _ = rand.Read(random[:]) // it never fails
	nonce := hex.EncodeToString(random[:])
	limit := commands.Lease.OutputLimit()
	if req.truncate {
		limit = min(limit, maxTruncated)
	}
	heard := newHeard(nonce, in.offset, limit)
	script := scriptOf(req.command, nonce, in.code)
	in.busy, in.nonce, in.code = true, nonce, 0
	d.shells.keep(key, in)
	waiting, end := context.WithCancelCause(ctx)
	defer end(nil)
	if req.limit > 0 {
		timer := time.AfterFunc(req.limit, func() { end(errOvertime) })
		defer timer.Stop()
	}
	silence := time.AfterFunc(req.silence, func() { end(errSilent) })
	defer silence.Stop()
	err := commands.Write(waiting, in.command, []byte(script), false)
	if isNotFound(err) || sdk.CodeOf(err) == sdk.CodeConflict {
		d.shells.forget(key)
		return errShellEnded
	}
	var command sdk.Command
	if err == nil {
		command, err = commands.Read(waiting, sdk.ReadCommandRequest{CommandID: in.command, StdoutOffset: in.offset, Follow: true}, func(piece sdk.CommandOutput) error {
			silence.Reset(req.silence)
			if heard.take(piece) {
				return errMarked
			}
			return nil
		})
	}
	cause := context.Cause(waiting)
	switch {
	case heard.ended:
		in.offset, in.busy, in.code = heard.next, false, heard.code
		d.shells.keep(key, in)
		result.Status, result.ExitCode = shellCompleted, &heard.code
	case err == nil: // the shell itself has ended
		d.shells.forget(key)
		result.Status, result.ExitCode = shellCompleted, &command.ExitCode
		if command.State == sdk.CommandCancelled || command.State == sdk.CommandOutOfMemory {
			result.Status = shellTerminated
		}
	case ctx.Err() == nil && errors.Is(cause, errSilent):
		in.offset = heard.next
		d.shells.keep(key, in)
		result.Status = shellSilent
	case ctx.Err() == nil && errors.Is(cause, errOvertime):
		d.shells.forget(key)
		result.Status = shellOvertime
		if err := endShell(ctx, commands, in.command); err != nil {
			return err
		}
	default:
		return err
	}
	result.Output = heard.text()
	return nil
}

type shellSession struct {
	Session    string `json:"session_id"`
	WorkingDir string `json:"working_dir"`
}

// createShell begins a session. One that is there is left as it is.
func (d *Door) createShell(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	f, err := readFields(c.Body)
	if err != nil {
		return err
	}
	id, dir := "", ""
	if err := f.read(map[string]any{"id": &id, "exec_dir": &dir}); err != nil {
		return err
	}
	switch {
	case dir != "":
		return refused("exec_dir", "is not served here: cd changes the directory of a shell")
	case f.empty("id"):
		id = "s-" + strings.ToLower(rand.Text()[:16])
	case !sessionForm.MatchString(id):
		return errSession
	}
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return err
	}
	key := shellKey{info.ID.String(), id}
	if _, known := d.shells.find(key); !known { // else it may be in use
		release, err := d.shells.locks.Take(r.Context(), key)
		if err != nil {
			return err
		}
		defer release()
		err = lending.WithCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
			_, err := d.readyShell(ctx, commands, key)
			return err
		})
		if err != nil {
			return err
		}
	}
	return answer(w, enveloped(shellSession{id, workspace}))
}

// deleteShell ends a session with all that runs in it. One that is not there has ended
// already.
func (d *Door) deleteShell(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	id := c.Path["session"]
	if !sessionForm.MatchString(id) {
		return errSession
	}
	info, err := d.of(r.Context(), c.Path["sandbox"])
	if err != nil {
		return err
	}
	err = lending.WithCommands(r.Context(), d.instances, c.Tenant, info.ID.String(), func(ctx context.Context, commands lending.Commands) error {
		all, err := commands.List(ctx)
		if err != nil {
			return err
		}
		for _, command := range all {
			if name, is := sessionOf(command); is && name == id && command.State == sdk.CommandRunning {
				err = errors.Join(err, endShell(ctx, commands, command.ID))
			}
		}
		return err
	})
	if err != nil {
		return err
	}
	d.shells.forget(shellKey{info.ID.String(), id})
	return answer(w, enveloped(struct{}{}))
}
