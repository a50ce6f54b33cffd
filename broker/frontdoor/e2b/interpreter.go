package e2b

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// interpreter answers what the code interpreter of E2B does.
type interpreter struct{ *Door }

// register registers its routes.
func (d interpreter) register() {
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: "/execute", AnyQuery: true}, d.execute)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: "/contexts", AnyQuery: true}, d.createContext)
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: "/contexts", AnyQuery: true}, d.listContexts)
	rest.Stream(d.api, rest.Operation{Method: http.MethodPost, Path: "/contexts/{context}/restart", AnyQuery: true}, d.restartContext)
	rest.Stream(d.api, rest.Operation{Method: http.MethodDelete, Path: "/contexts/{context}", AnyQuery: true}, d.deleteContext)
}

// contextKey is a context of a sandbox: one by its ID, or the default one of a language.
type contextKey struct{ sandbox, context, language string }

// codeContext is an interpreter that keeps its state.
type codeContext struct {
	ID       string `json:"id"`
	Language string `json:"language"`
	Cwd      string `json:"cwd"`
}

func contextOf(c sdk.CodeContext) codeContext {
	return codeContext{c.ID, string(c.Language), c.Cwd}
}

// maxCode bounds the body of a request for the interpreter, in bytes.
const maxCode = 4 << 20

// readBody reads the body of a request for the interpreter, which must be an object with
// no other fields than into has.
func readBody(r *http.Request, into any) error {
	text, err := rest.ReadWhole(r, maxCode)
	if err != nil || len(text) == 0 {
		return err
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil || decoder.More() {
		return unreadable("The body must be a JSON object with the fields that the API has, each of its type.")
	}
	return nil
}

func unreadable(text string) error {
	return &illFormed{rest.BadRequest(http.StatusUnprocessableEntity, text)}
}

// languageOf checks a language that is named; python unless one is.
func languageOf(name string) (sdk.Language, error) {
	name = strings.ToLower(strings.TrimSpace(name))
	if name == "" {
		return sdk.Python, nil
	}
	switch language := sdk.ParseLanguage(name); language {
	case sdk.Python, sdk.JavaScript, sdk.Bash:
		return language, nil
	default:
		return "", sdk.FieldErrorf(sdk.CodeNotSupported, "language", "There is no kernel for this language here: there are python, javascript and bash.")
	}
}

// withContexts lends the contexts of the sandbox that a request names.
func (d interpreter) withContexts(r *http.Request, c rest.Call[rest.None], use func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error) error {
	info, err := d.named(r, c.Tenant)
	if err != nil {
		return err
	}
	return lending.Lend(r.Context(), d.instances, c.Tenant, info.ID.String(), sdk.CapabilityContexts, (*instance.Lease).Within, use)
}

func (d interpreter) createContext(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	var body struct {
		Language *string `json:"language"`
		Cwd      *string `json:"cwd"`
	}
	if err := readBody(r, &body); err != nil {
		return err
	}
	language, err := languageOf(valueOf(body.Language))
	if err != nil {
		return err
	}
	cwd, err := pathOf(valueOf(body.Cwd))
	if err != nil {
		return err
	}
	var made sdk.CodeContext
	err = d.withContexts(r, c, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		req := sdk.CreateContextRequest{Cwd: cwd}
		err := lease.BoundContext(&req, string(language))
		if err == nil {
			made, err = contexts.CreateContext(ctx, req)
		}
		return err
	})
	if err != nil {
		return err
	}
	return sendJSON(w, contextOf(made))
}

func valueOf(text *string) string {
	if text == nil {
		return ""
	}
	return *text
}

func (d interpreter) listContexts(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	list := []codeContext{}
	err := d.withContexts(r, c, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		all, err := contexts.ListContexts(ctx, lease.InstanceID)
		for _, one := range all {
			list = append(list, contextOf(one))
		}
		return err
	})
	if err != nil {
		return err
	}
	return sendJSON(w, list)
}

// withContext finds the context of a path for use.
func (d interpreter) withContext(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None], use func(ctx context.Context, contexts sdk.Contexts, instanceID, id string) error) error {
	err := d.withContexts(r, c, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
		found, err := lending.FindContext(ctx, contexts, lease, c.Path["context"])
		if err != nil {
			return err
		}
		return use(ctx, contexts, lease.InstanceID, found.ID)
	})
	if err != nil {
		return err
	}
	return sendJSON(w, nil)
}

func (d interpreter) restartContext(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	at, err := d.targetOfRequest(r)
	if err != nil {
		return err
	}
	return d.withContext(w, r, c, func(ctx context.Context, contexts sdk.Contexts, instanceID, id string) error {
		d.counts.Forget(contextKey{at.sandbox, id, ""})
		return contexts.RestartContext(ctx, instanceID, id)
	})
}

func (d interpreter) deleteContext(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	return d.withContext(w, r, c, func(ctx context.Context, contexts sdk.Contexts, instanceID, id string) error {
		return contexts.DeleteContext(ctx, instanceID, id)
	})
}

// execute runs code in a context, and tells what it prints and makes, a line each.
func (d interpreter) execute(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	var body struct {
		Code      *string           `json:"code"`
		ContextID *string           `json:"context_id"`
		Language  *string           `json:"language"`
		EnvVars   map[string]string `json:"env_vars"`
	}
	if err := readBody(r, &body); err != nil {
		return err
	}
	switch {
	case body.Code == nil:
		return unreadable("code is required.")
	case valueOf(body.ContextID) != "" && valueOf(body.Language) != "":
		return refused("language", "does not go with context_id: a context has one")
	}
	req := instance.ExecuteRequest{Code: *body.Code, Env: body.EnvVars, ContextID: valueOf(body.ContextID), Longest: true}
	if req.ContextID == "" {
		language, err := languageOf(valueOf(body.Language))
		if err != nil {
			return err
		}
		req.Language, req.Context, req.ContextCwd = string(language), instance.DefaultContext, home
	}
	info, err := d.named(r, c.Tenant)
	if err == nil && req.ContextID != "" { // what is not there has an answer of its own, before the first line
		err = d.withContexts(r, c, func(ctx context.Context, contexts sdk.Contexts, lease *instance.Lease) error {
			_, err := lending.FindContext(ctx, contexts, lease, req.ContextID)
			return err
		})
	}
	if err != nil {
		return err
	}
	ctx := r.Context()
	to := newLineStream(w)
	defer to.close()
	at := contextKey{info.ID.Instance, req.ContextID, req.Language}
	cell := newCellListener(to, sync.OnceValue(func() int { return d.counts.Next(at) }))
	req.Listener = cell
	execution, err := d.instances.Execute(ctx, c.Tenant, info.ID.String(), req)
	if err == nil {
		return cell.end(execution)
	}
	if !to.begun() || ctx.Err() != nil {
		return err
	}
	refusal := rest.RefusalOf(err, c.RequestID)
	if told := cell.fail(string(refusal.Code), refusal.Detail); told != nil {
		return told
	}
	return rest.Told{Err: err}
}

// line is one thing that a stream tells.
type line map[string]any

// silence is how long a stream tells nothing, as with E2B's own server.
const silence = 5 * time.Second

// lineTime is how long a client may take for a line.
const lineTime = 30 * time.Second

// lineStream is an answer of JSON objects, a line each.
type lineStream struct {
	w          http.ResponseWriter
	controller *http.ResponseController
	pulse      *pulse[line]
	mu         sync.Mutex
	sent       bool
}

// newLineStream begins nothing yet. The caller closes it.
func newLineStream(w http.ResponseWriter) *lineStream {
	s := &lineStream{w: w, controller: http.NewResponseController(w)}
	s.pulse = newPulse(s.write, silence, line{"type": "keepalive"})
	return s
}

// tell sends a line and returns when the connection has taken it.
func (s *lineStream) tell(l line) error { return s.pulse.tell(l) }

func (s *lineStream) close() { s.pulse.close() }

// begun reports whether anything was told.
func (s *lineStream) begun() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sent
}

// write is called by one at a time.
func (s *lineStream) write(l line) error {
	s.mu.Lock()
	first := !s.sent
	s.sent = true
	s.mu.Unlock()
	if first {
		header := s.w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("Cache-Control", "no-cache")
		header.Set("X-Accel-Buffering", "no") // nginx would collect lines
		s.w.WriteHeader(http.StatusOK)
	}
	text, err := rest.EncodeJSON(l)
	if err != nil {
		return err
	}
	_ = s.controller.SetWriteDeadline(time.Now().Add(lineTime)) // where there are none, the wait is longer
	if _, err := s.w.Write(append(text, '\n')); err != nil {
		return err
	}
	return s.controller.Flush()
}

// cellListener makes lines of what code does.
type cellListener struct {
	to *lineStream
	// number is that of the execution in its context.
	number func() int

	mu     sync.Mutex
	output *lending.RuneCutter
	// passed counts the bytes of each stream.
	passed map[sdk.Stream]int64
	// trace is the end of what was printed on stderr, where tracebacks are.
	trace []byte
	// result is the value whose representations are coming, of that group.
	result line
	group  int
}

var _ instance.Listener = (*cellListener)(nil)

func newCellListener(to *lineStream, number func() int) *cellListener {
	l := &cellListener{to: to, number: number, passed: map[sdk.Stream]int64{}}
	l.output = lending.NewRuneCutter(func(piece sdk.CommandOutput) error {
		return to.tell(line{
			"type": string(piece.Stream), "text": strings.ToValidUTF8(string(piece.Data), "\uFFFD"), "timestamp": time.Now().UTC().Format(timeFormat),
		})
	})
	return l
}

// timeFormat is how Python writes a time.
const timeFormat = "2006-01-02T15:04:05.000000-07:00"

// Started implements instance.Listener. The first line comes at once: clients wait for it,
// and count the time of the code from then on.
func (l *cellListener) Started(context.Context, instance.Execution) error {
	return l.to.tell(line{"type": "number_of_executions", "execution_count": l.number()})
}

// Stdout implements instance.Listener.
func (l *cellListener) Stdout(_ context.Context, p []byte) error { return l.print(sdk.Stdout, p) }

// maxTrace bounds what is kept of stderr, in bytes.
const maxTrace = 64 << 10

// Stderr implements instance.Listener.
func (l *cellListener) Stderr(_ context.Context, p []byte) error {
	l.mu.Lock()
	l.trace = append(l.trace, p...)
	if len(l.trace) > maxTrace {
		l.trace = append(l.trace[:0], l.trace[len(l.trace)-maxTrace:]...)
	}
	l.mu.Unlock()
	return l.print(sdk.Stderr, p)
}

func (l *cellListener) print(stream sdk.Stream, p []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	offset := l.passed[stream]
	l.passed[stream] += int64(len(p))
	return l.output.Take(sdk.CommandOutput{Stream: stream, Offset: offset, Data: p})
}

// representations are the names that E2B has for media types.
var representations = map[string]string{
	"text/plain": "text", "text/html": "html", "text/markdown": "markdown", "text/latex": "latex", "image/svg+xml": "svg",
	"image/png": "png", "image/jpeg": "jpeg", "application/pdf": "pdf", "application/json": "json", "application/javascript": "javascript",
	"application/vnd.e2b.chart+json": "chart", "application/vnd.e2b.data+json": "data",
}

// isObject reports whether a text is one JSON object. What is in it is the code's affair.
func isObject(text []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(text, " \t\r\n"), []byte("{")) && json.Valid(text)
}

// Artifact implements instance.Listener. Representations of one value come one after the
// other, and are told together.
func (l *cellListener) Artifact(_ context.Context, a sdk.Artifact) error {
	if a.Kind == sdk.ArtifactFile || a.Refused != "" {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.result != nil && (l.group != a.Group || a.Group == 0) {
		if err := l.flush(); err != nil {
			return err
		}
	}
	if l.result == nil {
		l.group = a.Group
		l.result = line{"type": "result", "extra": line{}, "is_main_result": a.Kind == sdk.ArtifactResult}
	}
	var value any = strings.ToValidUTF8(string(a.Data), "\uFFFD")
	name := representations[a.MIMEType]
	if (name == "chart" || name == "data") && !isObject(a.Data) {
		name = "" // the SDKs would take it for an object
	}
	switch {
	case a.MIMEType == "application/json" && json.Valid(a.Data), name == "chart", name == "data":
		l.result[name] = json.RawMessage(a.Data)
	case name == "png" || name == "jpeg" || name == "pdf":
		l.result[name] = base64.StdEncoding.EncodeToString(a.Data)
	case name == "text":
		l.result[name] = unquoted(strings.ToValidUTF8(string(a.Data), "\uFFFD"))
	case name != "":
		l.result[name] = value
	default:
		switch {
		case strings.HasSuffix(a.MIMEType, "+json") && json.Valid(a.Data):
			value = json.RawMessage(a.Data)
		case !strings.HasPrefix(a.MIMEType, "text/"):
			value = base64.StdEncoding.EncodeToString(a.Data)
		}
		l.result["extra"].(line)[a.MIMEType] = value //nolint:forcetypeassert // it was made so
	}
	return nil
}

// unquoted is a value without the quotes that a text has around it, as E2B shows it.
func unquoted(text string) string {
	if n := len(text); n >= 2 && (text[0] == '\'' || text[0] == '"') && text[n-1] == text[0] {
		return text[1 : n-1]
	}
	return text
}

// flush tells the value that has come. It is called with mu held.
func (l *cellListener) flush() error {
	if l.result == nil {
		return nil
	}
	told := l.result
	l.result = nil
	return l.to.tell(told)
}

// end tells how it ended: well, or with what the interpreter says.
func (l *cellListener) end(e instance.Execution) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.output.End(); err != nil {
		return err
	}
	if err := l.flush(); err != nil {
		return err
	}
	if e.Result.Truncated {
		return l.tellError("OutputLimitExceeded", "The code printed more than this server passes on; the rest is missing.", "")
	}
	if e.Result.Status != sdk.StatusSucceeded {
		name, value, traceback := lending.FailureOf(e, string(l.trace))
		return l.tellError(name, value, strings.Join(traceback, "\n"))
	}
	return l.to.tell(line{"type": "end_of_execution"})
}

// fail tells of a failure of the server.
func (l *cellListener) fail(name, value string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.tellError(name, value, "")
}

func (l *cellListener) tellError(name, value, traceback string) error {
	if err := l.to.tell(line{"type": "error", "name": name, "value": value, "traceback": traceback}); err != nil {
		return err
	}
	return l.to.tell(line{"type": "end_of_execution"})
}
