package opensandbox

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strconv"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/sandbox-broker/sandbox-broker/broker/api/lending"
	"github.com/sandbox-broker/sandbox-broker/broker/api/rest"
	"github.com/sandbox-broker/sandbox-broker/broker/failpoint"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Answers keep what operations were answered, durably; *idempotency.Answers does.
type Answers interface {
	rest.Answers
	Find(id idempotency.ID) (idempotency.State, idempotency.Answer, error)
}

// operations are begun once, however often they are asked for.
type operations struct {
	kept Answers // nil where there are none
	// under are those that are being begun: who asks for one of them waits with the first.
	under singleflight.Group
}

// registerOperations registers the routes of operations: commands and terminals whose start is
// asked for by a name of the client's, so that it can be asked for again when the answer was lost.
func (d execd) registerOperations(base string) {
	rest.Register(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/execution/instance"}, unstoredAnswer(d.executionInstance))
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/command/operations"}, unstoredAnswer(d.commandOperation))
	rest.Register(d.api, rest.Operation{Method: http.MethodPost, Path: base + "/pty/operations"}, unstoredAnswer(d.terminalOperation))
	rest.Stream(d.api, rest.Operation{Method: http.MethodGet, Path: base + "/execution/operation", AnyQuery: true}, d.findOperation)
}

const (
	// headerOperation names the operation that is looked for.
	headerOperation = "X-EXECD-OPERATION-ID"
	// maxOperation bounds the body of one, in bytes.
	maxOperation = 1 << 20
	// keepingTime bounds the writing down of what an operation came to.
	keepingTime = 30 * time.Second

	kindCommand = "command"
	kindPTY     = "pty"
)

// unstored is a refusal that nothing on the way may keep, as the answers of operations.
type unstored struct{ error }

func (u *unstored) Unwrap() error { return u.error }

// unstoredAnswer is a handler whose answers and refusals nothing on the way may keep.
func unstoredAnswer[In, Out any](handle rest.Handler[In, Out]) rest.Handler[In, Out] {
	return func(ctx context.Context, c rest.Call[In]) (int, Out, error) {
		c.SetHeader("Cache-Control", "no-store")
		status, out, err := handle(ctx, c)
		if err != nil {
			err = &unstored{err}
		}
		return status, out, err
	}
}

// executionInstance is what the names of operations begin with.
type executionInstance struct {
	ID        string `json:"instance_id"`
	IssuedAt  int64  `json:"issued_at"`
	Retention int64  `json:"retention_seconds"`
	Capacity  int    `json:"capacity"`
}

func (d execd) executionInstance(ctx context.Context, c rest.Call[rest.None]) (int, executionInstance, error) {
	info, err := d.sandbox(ctx, c.Tenant, c.Path["id"])
	if err == nil && d.operations.kept == nil {
		err = errNoOperations
	}
	return http.StatusOK, executionInstance{
		ID: d.tokens.executionsOf(info.ID), IssuedAt: time.Now().Unix(),
		Retention: int64(idempotency.Life / time.Second), Capacity: idempotency.MaxGroup,
	}, err
}

// The refusals of operations. Clients know them by these codes.
var (
	errNoOperations = unavailable("this broker keeps no answers, without which operations cannot be had")
	errOperationID  = spoken("invalid_operation_id", refused("operation_id", "must be the instance_id and the issued_at of /execution/instance and 8 to 128 letters, digits, _ and -, with dots between them"))
	errKind         = spoken("invalid_operation_kind", refused("kind", "must be %s or %s", kindCommand, kindPTY))
	errNoOperation  = spoken("operation_not_found", sdk.Errorf(sdk.CodeNotFound, "There is no such operation in this sandbox."))
	errOtherRequest = spoken("operation_conflict", sdk.Errorf(sdk.CodeConflict, "The operation_id was used for another request; use one of its own for each."))
	errOtherBox     = spoken("operation_instance_mismatch", sdk.Errorf(sdk.CodeConflict, "The operation_id is of another sandbox, or of one that there was before this one. What became of the operation is unknown here."))
	errUnknown      = spoken("operation_instance_mismatch", sdk.Errorf(sdk.CodeConflict, "The operation was cut off, by a restart of the broker for example, and is not begun again: whether it was begun is unknown. Look, and use another operation_id to do it again."))
	errExpired      = spoken("operation_expired", &rest.Error{Code: sdk.CodeNotFound, Status: http.StatusGone, Detail: "The operation_id was issued more than 24 hours ago. What became of the operation is unknown, and it is not begun."})
	errNoCapacity   = spoken("operation_capacity_exceeded", &rest.Error{Code: sdk.CodeQuotaExceeded, Status: http.StatusServiceUnavailable, Detail: "There are as many operations of this sandbox, or of its tenant, as are kept. Each is kept for 24 hours."})
)

var operationForm = regexp.MustCompile(`^([0-9a-f]{32})\.(0|[1-9][0-9]{0,17})\.[A-Za-z0-9_-]{8,128}$`)

// expiryOf is when the name of an operation ends. Its issue is in the past, so that what
// is kept of it outlives the name.
func expiryOf(id, instance string, now time.Time) (time.Time, error) {
	parts := operationForm.FindStringSubmatch(id)
	if parts == nil {
		return time.Time{}, errOperationID
	}
	if parts[1] != instance {
		return time.Time{}, errOtherBox
	}
	issued, err := strconv.ParseInt(parts[2], 10, 64)
	if err != nil || issued > now.Unix() {
		return time.Time{}, errOperationID
	}
	return time.Unix(issued, 0).Add(idempotency.Life).UTC(), nil
}

// operation is one, as its client sees it.
type operation struct {
	// ID of what was begun; empty as long as there is nothing.
	ID        string         `json:"id"`
	Kind      string         `json:"kind"`
	State     operationState `json:"state"`
	ExpiresAt time.Time      `json:"expires_at"`
	// Error says why it has failed.
	Error string `json:"error,omitempty"`
}

type operationState string

const (
	operationCreating operationState = "creating"
	operationCreated  operationState = "created"
	operationFailed   operationState = "failed"
)

func (o operation) status() int {
	if o.State == operationCreating {
		return http.StatusAccepted
	}
	return http.StatusOK
}

// commandOperation starts a command, unless that was done for the same operation before.
// Nobody waits for its end and none of its output is told here, so that it has a log as
// those in the background.
func (d execd) commandOperation(ctx context.Context, c rest.Call[rest.Raw]) (int, operation, error) {
	var body struct {
		commandBody
		OperationID string `json:"operation_id"`
	}
	if err := readOperation(c.Body, &body); err != nil {
		return 0, operation{}, err
	}
	logged := body.commandBody
	logged.Background = true
	req, err := logged.request()
	if err != nil {
		return 0, operation{}, err
	}
	// What is given and empty is as good as absent.
	same := body.commandBody
	if len(same.Argv) == 0 {
		same.Argv = nil
	}
	if len(same.Envs) == 0 {
		same.Envs = nil
	}
	return d.begin(ctx, c, kindCommand, body.OperationID, same, req, body.Cwd)
}

// terminalOperation starts a terminal, unless that was done for the same operation before.
func (d execd) terminalOperation(ctx context.Context, c rest.Call[rest.Raw]) (int, operation, error) {
	var body struct {
		terminalBody
		OperationID string `json:"operation_id"`
	}
	if err := readOperation(c.Body, &body); err != nil {
		return 0, operation{}, err
	}
	return d.begin(ctx, c, kindPTY, body.OperationID, body.terminalBody, body.request(), body.Cwd)
}

// asked is an operation that a client names.
type asked struct {
	info   instance.Info
	kind   string
	key    idempotency.ID
	expiry time.Time
}

// operationOf finds what the name of an operation means to the sandbox of a path. Kinds do
// not know each other's names. No Idempotency-Key has a space in it, so that none is the
// key of an operation.
func (d execd) operationOf(ctx context.Context, who tenant.Tenant, sandbox, kind, id string) (asked, error) {
	info, err := d.sandbox(ctx, who, sandbox)
	if err != nil {
		return asked{}, err
	}
	if d.operations.kept == nil {
		return asked{}, errNoOperations
	}
	box := d.tokens.executionsOf(info.ID)
	expiry, err := expiryOf(id, box, time.Now())
	key := idempotency.ID{Tenant: who.Name, Since: who.Since, Group: Name + " " + box, Key: Name + " " + kind + " " + id}
	return asked{info, kind, key, expiry}, err
}

// begin begins an operation, or says what became of it when it was begun. What it is to
// start, in a directory as a client writes that, is started once at most, whatever happens
// to the broker. request is what has to be the same.
func (d execd) begin(ctx context.Context, c rest.Call[rest.Raw], kind, id string, request any, program sdk.CommandRequest, cwd string) (int, operation, error) {
	of, err := d.operationOf(ctx, c.Tenant, c.Path["id"], kind, id)
	if err == nil && !time.Now().Before(of.expiry) {
		err = errExpired
	}
	if err != nil {
		return 0, operation{}, err
	}
	text, err := json.Marshal(request)
	if err != nil {
		return 0, operation{}, err
	}
	fingerprint := idempotency.Fingerprint(sha256.Sum256(text))
	result, err, _ := d.operations.under.Do(of.key.String()+string(fingerprint[:]), func() (any, error) {
		// It goes on without its client, who may ask again.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Timeout)
		defer cancel()
		return d.operations.once(ctx, of, fingerprint, func() (started string, unclear bool, err error) {
			called, program := false, program
			err = lending.WithCommands(ctx, d.instances, c.Tenant, of.info.ID.String(), func(ctx context.Context, commands lending.Commands) (err error) {
				if program.Cwd, err = resolveCwd(ctx, commands, cwd, program.Env); err != nil {
					return err
				}
				called = true
				command, err := commands.Start(ctx, program, lending.StartOptions{})
				started = command.ID
				return err
			})
			return started, called && !withoutEffect(err), err
		})
	})
	if err != nil {
		return 0, operation{}, err
	}
	o := result.(operation) //nolint:forcetypeassert // there is no other
	return o.status(), o, nil
}

// withoutEffect reports whether the provider has refused, and certainly done nothing.
func withoutEffect(err error) bool {
	fault, ok := errors.AsType[*instance.Fault](err)
	return ok && !fault.Begun
}

// once calls start for an operation that was never begun, and else says what became of it.
// An error of start is unclear where something may have been started.
func (o *operations) once(ctx context.Context, of asked, f idempotency.Fingerprint, start func() (started string, unclear bool, err error)) (operation, error) {
	state, answer, err := o.kept.Begin(ctx, of.key, f)
	switch {
	case sdk.CodeOf(err) == sdk.CodeQuotaExceeded:
		return operation{}, errNoCapacity
	case err != nil:
		return operation{}, err
	case state == idempotency.Reused:
		return operation{}, errOtherRequest
	case state == idempotency.Interrupted:
		o.kept.Abandon(of.key)
		return operation{}, errUnknown
	case state != idempotency.Fresh:
		return of.told(state, answer)
	}
	failpoint.Hit(failpoint.KeyBegun)
	done := operation{Kind: of.kind, State: operationCreated, ExpiresAt: of.expiry}
	ended := false
	defer func() {
		if !ended { // by a panic too
			o.kept.Abandon(of.key)
		}
	}()
	started, unclear, err := start()
	switch {
	case err == nil:
		done.ID = started
	case unclear:
		return operation{}, fmt.Errorf("%w (%w)", errUnknown, err)
	case sdk.CodeOf(err) == sdk.CodeInvalidRequest:
		done.State, done.Error, err = operationFailed, rest.RefusalOf(err, "").Detail, nil
	}
	var kept *idempotency.Answer // none of what may come to another end the next time
	if err == nil {
		body, _ := json.Marshal(done)
		kept = &idempotency.Answer{Status: http.StatusOK, ContentType: "application/json", Body: body}
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepingTime)
	defer cancel()
	ended = true
	failpoint.Hit(failpoint.KeyAnswer)
	defer failpoint.Hit(failpoint.KeyKept)
	if keepErr := o.kept.End(ctx, of.key, kept); keepErr != nil && err != nil {
		return operation{}, errors.Join(err, keepErr)
	}
	return done, err // what has happened is answered, kept or not
}

// told is what a client hears of an operation that was begun.
func (of asked) told(state idempotency.State, answer idempotency.Answer) (operation, error) {
	switch state {
	case idempotency.Running:
		return operation{Kind: of.kind, State: operationCreating, ExpiresAt: of.expiry}, nil
	case idempotency.Answered:
		var o operation
		if err := json.Unmarshal(answer.Body, &o); err != nil {
			return operation{}, fmt.Errorf("read what is kept of an operation: %w", err)
		}
		return o, nil
	case idempotency.Interrupted:
		return operation{}, errUnknown
	default:
		return operation{}, errNoOperation
	}
}

// findOperation says what became of an operation, and begins none.
func (d execd) findOperation(w http.ResponseWriter, r *http.Request, c rest.Call[rest.None]) error {
	found, err := d.lookUp(r, c)
	if err != nil {
		return &unstored{err}
	}
	body, err := json.Marshal(found)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(found.status())
	_, _ = w.Write(body) // the client may be gone
	return nil
}

func (d execd) lookUp(r *http.Request, c rest.Call[rest.None]) (operation, error) {
	kind := r.URL.Query().Get("kind")
	if kind != kindCommand && kind != kindPTY {
		return operation{}, errKind
	}
	of, err := d.operationOf(r.Context(), c.Tenant, c.Path["id"], kind, rest.OnlyOne(r.Header.Values(headerOperation)))
	if err != nil {
		return operation{}, err
	}
	state, answer, err := d.operations.kept.Find(of.key)
	if err != nil {
		return operation{}, err
	}
	if state != idempotency.Running && !time.Now().Before(of.expiry) {
		return operation{}, errExpired
	}
	return of.told(state, answer)
}

// readOperation reads the body of one.
func readOperation(body []byte, into any) error {
	if len(body) > maxOperation {
		return sdk.Errorf(sdk.CodeInvalidRequest, "The body must not be larger than 1 MiB.")
	}
	return readObject(body, into)
}
