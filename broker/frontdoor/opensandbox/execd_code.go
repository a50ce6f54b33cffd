package opensandbox

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"net/http"
	"slices"
	"strings"
	"sync"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/frontdoor"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// registerCode registers the routes of code and its contexts.
func (d execd) registerCode(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/code/context"}, d.createContext)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/code/contexts", AnyQuery: true}, d.listContexts)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/code/contexts", AnyQuery: true}, d.deleteContexts)
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/code/contexts/{context}"}, d.getContext)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/code/contexts/{context}"}, d.deleteContext)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/code"}, d.runCode)
	rest.Register(d.api, rest.Operation{Method: http.MethodDelete, Path: base + "/code", AnyQuery: true}, d.interruptCode)
}

// codeContext is an interpreter that keeps its state.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
}

// languageCommand is that of code which is a command of the shell.
const languageCommand = "command"

// languageOf checks a language that is named. What no provider has is told so in
// OpenSandbox's words.
func languageOf(name string) (sdk.Language, error) {
	switch language := sdk.ParseLanguage(name); language {
	case sdk.Python, sdk.JavaScript, sdk.Bash:
		return language, nil
	default:
		return "", refused("language", "NOT_SUPPORTED: must be python, javascript or bash")
	}
}

// withContexts lends the contexts of a sandbox.
func (d execd) withContexts(ctx context.Context, who tenant.Tenant, id string, use func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error) error {
	info, err := d.sandbox(ctx, who, id)
	if err != nil {
		return err
	}
	return lending.Lend(ctx, d.instances, who, info.ID.String(), sdk.CapabilityContexts, (*instance.Lease).Within, use)
}

func (d execd) createContext(ctx context.Context, c rest.Call[rest.Raw]) (int, codeContext, error) {
	var body struct {
		Language string `json:"language"`
		Cwd      string `json:"cwd"`
	}
	if err := readObject(c.Body, &body); err != nil {
		return 0, codeContext{}, err
	}
	language, err := languageOf(body.Language)
	if err != nil {
		return 0, codeContext{}, err
	}
	var made sdk.CodeContext
	err = d.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		req := sdk.CreateContextRequest{Cwd: body.Cwd}
		err := lease.BoundContext(&req, string(language))
		if err == nil {
			made, err = contexts.CreateContext(ctx, req)
		}
		return err
	})
	return http.StatusOK, codeContext{made.ID, string(made.Language)}, err
}

// contextsOf lists those of a language, or all.
func (d execd) contextsOf(ctx context.Context, c rest.Call[rest.None], required bool) ([]sdk.CodeContext, error) {
	query, err := frontdoor.Query(c.RawQuery)
	if err != nil {
		return nil, refused("language", "is malformed")
	}
	language := sdk.Language("")
	if name := query.Get("language"); name != "" || required {
		if language, err = languageOf(name); err != nil {
			return nil, err
		}
	}
	var list []sdk.CodeContext
	err = d.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		list, err = contexts.ListContexts(ctx, lease.InstanceID)
		return err
	})
	return slices.DeleteFunc(list, func(one sdk.CodeContext) bool { return language != "" && one.Language != language }), err
}

func (d execd) listContexts(ctx context.Context, c rest.Call[rest.None]) (int, []codeContext, error) {
	all, err := d.contextsOf(ctx, c, false)
	list := []codeContext{}
	for _, one := range all {
		list = append(list, codeContext{one.ID, string(one.Language)})
	}
	return http.StatusOK, list, err
}

func (d execd) deleteContexts(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	all, err := d.contextsOf(ctx, c, true)
	if err != nil {
		return 0, rest.None{}, err
	}
	return http.StatusOK, rest.None{}, d.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		for _, one := range all {
			d.running.forget(lease.Info(), one.ID)
			if err := contexts.DeleteContext(ctx, lease.InstanceID, one.ID); err != nil {
				return err
			}
		}
		return nil
	})
}

func (d execd) getContext(ctx context.Context, c rest.Call[rest.None]) (int, codeContext, error) {
	var found sdk.CodeContext
	err := d.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) (err error) {
		found, err = lending.FindContext(ctx, contexts, lease, c.Path["context"])
		return err
	})
	return http.StatusOK, codeContext{found.ID, string(found.Language)}, err
}

func (d execd) deleteContext(ctx context.Context, c rest.Call[rest.None]) (int, rest.None, error) {
	return http.StatusOK, rest.None{}, d.endContext(ctx, c.Tenant, c.Path["id"], c.Path["context"])
}

func (d execd) endContext(ctx context.Context, who tenant.Tenant, id, contextID string) error {
	return d.withContexts(ctx, who, id, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		found, err := lending.FindContext(ctx, contexts, lease, contextID)
		if err != nil {
			return err
		}
		d.running.forget(lease.Info(), found.ID)
		return contexts.DeleteContext(ctx, lease.InstanceID, found.ID)
	})
}

// runCode runs code in a context, and tells what it prints and makes.
func (d execd) runCode(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw]) error {
	var body struct {
		Code    string `json:"code"`
		Context *struct {
			ID       string `json:"id"`
			Language string `json:"language"`
		} `json:"context"`
	}
	if err := readObject(c.Body, &body); err != nil {
		return err
	}
	if body.Code == "" {
		return refused("code", "must not be empty")
	}
	if body.Context == nil || body.Context.ID == "" && (body.Context.Language == "" || body.Context.Language == languageCommand) {
		command, err := rest.EncodeJSON(commandBody{Command: body.Code})
		if err != nil {
			return err
		}
		c.Body = command
		return d.runCommand(w, r, c)
	}
	req := instance.ExecuteRequest{Code: body.Code}
	if body.Context.ID != "" {
		req.ContextID = body.Context.ID
	} else {
		language, err := languageOf(body.Context.Language)
		if err != nil {
			return err
		}
		req.Language, req.Context = string(language), instance.DefaultContext
	}
	return d.executeIn(w, r, c, req, false)
}

// executeIn runs code in a context of a sandbox. Its events are those of a cell, or those
// of a command.
func (d execd) executeIn(w http.ResponseWriter, r *http.Request, c rest.Call[rest.Raw], req instance.ExecuteRequest, asCommand bool) error {
	info, err := d.sandbox(r.Context(), c.Tenant, c.Path["id"])
	if err != nil {
		return err
	}
	to := newEventStream(w)
	defer to.close()
	at := cellOf(info, req)
	if !d.running.enter(at) {
		return sdk.Errorf(sdk.CodeConflict, "session is busy: another execution runs in it.")
	}
	defer d.running.leave(at)
	ctx := r.Context()
	if req.ContextID != "" && d.running.counts.Last(at) == 0 {
		// A stream of events could not answer 404 any more once it is told that it has begun.
		err := d.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
			_, err := lending.FindContext(ctx, contexts, lease, req.ContextID)
			return err
		})
		if err != nil {
			return err
		}
	}
	send := func(e event) error { return to.send(ctx, e) }
	cell := &cellListener{name: req.ContextID, send: send}
	if asCommand {
		cell.stdout, cell.stderr = &lines{kind: eventStdout, send: send}, &lines{kind: eventStderr, send: send}
	}
	cell.begun = func(execution string) int { return d.running.begun(at, execution) }
	req.Listener, req.Longest, req.Wait = cell, true, d.settings.Load().Wait
	execution, err := d.instances.Execute(ctx, c.Tenant, info.ID.String(), req)
	if err == nil {
		err = cell.end(ctx, to, execution)
	}
	return to.finish(ctx, err, c.RequestID)
}

// cellListener makes events of what code does.
type cellListener struct {
	name  string // of the context, as the client knows it
	send  func(event) error
	begun func(execution string) (number int)
	// stdout and stderr are nil for code, whose output keeps its line ends.
	stdout, stderr *lines
	// cut holds the beginning of a character whose rest has not come, of stdout and of
	// stderr.
	cut [2][]byte
	// trace is the end of what was printed on stderr, where tracebacks are.
	trace []byte
	// number of the execution in its context, 0 once it was told.
	number int
	// results are the forms, so far, of the value of a group.
	results map[string]string
	group   int
}

var _ instance.Listener = (*cellListener)(nil)

// Started implements instance.Listener.
func (l *cellListener) Started(_ context.Context, where instance.Execution) error {
	l.number = l.begun(where.ID)
	name := l.name
	if name == "" {
		name = where.ID
	}
	return l.send(event{Type: eventInit, Text: name})
}

// Stdout implements instance.Listener.
func (l *cellListener) Stdout(_ context.Context, p []byte) error {
	if l.stdout != nil {
		return l.stdout.write(p)
	}
	return l.output(eventStdout, &l.cut[0], p)
}

// maxTrace bounds what is kept of stderr, in bytes.
const maxTrace = 64 << 10

// Stderr implements instance.Listener.
func (l *cellListener) Stderr(_ context.Context, p []byte) error {
	if l.stderr != nil {
		return l.stderr.write(p)
	}
	l.trace = append(l.trace, p...)
	if len(l.trace) > maxTrace {
		l.trace = append(l.trace[:0], l.trace[len(l.trace)-maxTrace:]...)
	}
	return l.output(eventStderr, &l.cut[1], p)
}

// output sends a piece of output without the beginning of a character at its end, and that
// with the next one.
func (l *cellListener) output(kind string, cut *[]byte, p []byte) error {
	p = append(*cut, p...)
	whole := lending.WholeRunes(p)
	*cut = bytes.Clone(p[len(whole):])
	return l.text(kind, whole)
}

func (l *cellListener) text(kind string, p []byte) error {
	if len(p) == 0 {
		return nil
	}
	return l.send(event{Type: kind, Text: validText(p)})
}

// Artifact implements instance.Listener. A value comes in several forms, and there may be
// output between them: it is told when the next one comes, or at the end.
func (l *cellListener) Artifact(_ context.Context, a sdk.Artifact) error {
	if a.Kind == sdk.ArtifactFile || a.Refused != "" || l.stdout != nil {
		return nil
	}
	if a.Group != l.group {
		if err := l.endResult(); err != nil {
			return err
		}
		l.group = a.Group
	}
	if l.results == nil {
		l.results = map[string]string{}
	}
	if strings.HasPrefix(a.MIMEType, "text/") || strings.HasSuffix(a.MIMEType, "json") || strings.HasSuffix(a.MIMEType, "xml") {
		l.results[a.MIMEType] = validText(a.Data)
	} else {
		l.results[a.MIMEType] = base64.StdEncoding.EncodeToString(a.Data)
	}
	if a.MIMEType == "text/plain" { // clients read the text of a result by two names
		l.results["text"] = l.results[a.MIMEType]
	}
	return nil
}

// endResult tells a value in all its forms, and before the first one which execution of the
// context this is.
func (l *cellListener) endResult() error {
	if l.results == nil {
		return nil
	}
	if l.number > 0 {
		if err := l.send(event{Type: eventCount, Count: l.number}); err != nil {
			return err
		}
		l.number = 0
	}
	e := event{Type: eventResult, Results: l.results}
	l.results = nil
	return l.send(e)
}

// outputLimit says why output is not whole.
const outputLimit = "The output is longer than the operator allows (limits.output), and the rest of it is missing."

// end tells how it ended: well, or with what the interpreter says.
func (l *cellListener) end(ctx context.Context, to *eventStream, e instance.Execution) error {
	if err := l.endOutput(e.Result.Truncated); err != nil {
		return err
	}
	var lost []string
	if e.Result.Truncated {
		lost = []string{outputLimit}
	}
	switch {
	case e.Result.Status == sdk.StatusSucceeded && lost != nil:
		return to.fail(ctx, errorOutputLost, outputLimit, exitStatus(0), outputLimit)
	case e.Result.Status == sdk.StatusSucceeded:
		return to.complete(ctx)
	case l.stdout != nil:
		return to.failCommand(ctx, e.Result.ExitCode, lost...)
	}
	name, value, traceback := lending.FailureOf(e, string(l.trace))
	return to.fail(ctx, name, value, append(traceback, lost...)...)
}

// endOutput sends what was held back. Where output was cut at the limit, half a character
// at its end is not worth an event.
func (l *cellListener) endOutput(truncated bool) error {
	if l.stdout != nil {
		return errors.Join(l.stdout.end(), l.stderr.end())
	}
	if !truncated {
		if err := errors.Join(l.text(eventStdout, l.cut[0]), l.text(eventStderr, l.cut[1])); err != nil {
			return err
		}
	}
	return l.endResult()
}

// interruptCode stops what runs in a context. It must be one that is known.
func (d execd) interruptCode(ctx context.Context, c rest.Call[rest.Raw]) (int, rest.None, error) {
	id, err := idOf(c.RawQuery)
	if err != nil {
		return 0, rest.None{}, err
	}
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err != nil {
		return 0, rest.None{}, err
	}
	if execution, running := d.running.find(info, id); running {
		return http.StatusOK, rest.None{}, d.instances.Interrupt(ctx, c.Tenant, info.ID.String(), execution)
	}
	return http.StatusOK, rest.None{}, d.withContexts(ctx, c.Tenant, c.Path["id"], func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		_, err := lending.FindContext(ctx, contexts, lease, id)
		return err
	})
}

// running knows which executions go on in which contexts, so that they are found by the
// context, and none is begun beside another; and how many there were in each. It ends with
// the process, as they do.
type running struct {
	mu         sync.Mutex
	executions map[cell]string
	counts     frontdoor.Counts[cell]
}

// cell is where code runs: a context by its ID, or the default one of a language.
type cell struct{ sandbox, context, language string }

// cellOf finds the default context of a language by its ID too.
func cellOf(info instance.Info, req instance.ExecuteRequest) cell {
	if req.ContextID == "" {
		return cell{info.ID.Instance, "", req.Language}
	}
	return contextCell(info, req.ContextID)
}

func contextCell(info instance.Info, id string) cell {
	for language, known := range info.Contexts {
		if known == id {
			return cell{info.ID.Instance, "", language}
		}
	}
	return cell{info.ID.Instance, id, ""}
}

func (r *running) enter(at cell) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, busy := r.executions[at]; busy {
		return false
	}
	if r.executions == nil {
		r.executions = map[cell]string{}
	}
	r.executions[at] = ""
	return true
}

// begun returns which execution in its context this is, from 1 on.
func (r *running) begun(at cell, execution string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.executions[at] != execution { // it is told once more where nothing has run
		r.counts.Next(at)
	}
	r.executions[at] = execution
	return r.counts.Last(at)
}

func (r *running) leave(at cell) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.executions, at)
}

// find returns the execution in a context, or the one that a client was told of as such.
func (r *running) find(info instance.Info, id string) (execution string, running bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if execution := r.executions[contextCell(info, id)]; execution != "" {
		return execution, true
	}
	for at, execution := range r.executions {
		if at.sandbox == info.ID.Instance && execution == id {
			return execution, true
		}
	}
	return "", false
}

// forget lets the executions of a context be counted anew.
func (r *running) forget(info instance.Info, id string) { r.counts.Forget(contextCell(info, id)) }
