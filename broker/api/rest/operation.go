package rest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"reflect"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/broker/api/handover"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/client/sse"
)

// Operation describes a route, once for Fiber and once for the document.
type Operation struct {
	Method string
	// Path as OpenAPI writes it: /instances/{id}. A * at its end stands for any
	// further path, {path} in the document.
	Path string
	// Query lists the parameters that it takes there; it refuses others.
	Query []Parameter
	// AnyQuery operations pass their query on as it is.
	AnyQuery bool
	// Resumes means that carrying it out once more gives what the first time gave.
	Resumes bool
	// streams says that what goes one way or the other is not kept.
	streams bool
	ID      string
	Tag     string
	Summary string
	Details string
	// Public operations need no token, those of Admin an administrator's.
	Public, Admin bool
	// Quiet operations are asked every few seconds, and logged for who looks closely.
	Quiet bool
	// Conditional operations take If-Match, Tagged ones answer with an ETag: the
	// revision of the configuration.
	Conditional, Tagged bool
	// Success lists the statuses of answers that are not problems.
	Success []int
	// Consumes and Produces are the media types of bodies that stream; empty
	// where there is none, and for those that are types of ours.
	Consumes, Produces string
	// Events are what an answer of type text/event-stream consists of.
	Events []Event
	// Codes that it may refuse with, beyond those that every operation of its
	// kind has.
	Codes []sdk.Code
	// Continues says that its events have IDs, and that it takes the header Last-Event-ID.
	Continues bool
	// Accepted is the type of an answer with status 202, if that is another one.
	Accepted reflect.Type
	// Unprocessable says that a parameter in its path may be refused with 422.
	Unprocessable bool
}

// AnyMediaType is that of bodies that are passed on, if there are any.
const AnyMediaType = "*/*"

// Raw is a body as it was sent, for who reads it himself. It may be of any type but not
// compressed.
type Raw []byte

// Call is one request as a handler sees it: a plain copy, without Fiber.
type Call[In any] struct {
	// Tenant that asks; empty for a public operation, and for an administrator.
	Tenant tenant.Tenant
	// Path has the parameters in the path.
	Path map[string]string
	// Host is where the client believes to have sent the request.
	Host string
	// Scheme is http or https: how the request came to the broker itself.
	Scheme string
	Query  Query
	// RawQuery is the query as it was sent.
	RawQuery string
	// IfMatch is the header of that name, of a conditional operation.
	IfMatch string
	// Key is the request's Idempotency-Key.
	Key string
	// LastEventID is the header of that name, of an operation that continues.
	LastEventID string
	// RequestID is in the log and in the answer.
	RequestID string
	// Timeout is how long a handler may take that answers at once.
	Timeout time.Duration
	Body    In
	x       *exchange
}

// Own says whose request it is, where a path has told that and no token. It refuses a
// tenant that has as many connections as it may.
func (c Call[In]) Own(tenant string) error {
	if !c.x.ticket.Own(tenant) {
		return errTooManyConnections
	}
	c.x.tenant = tenant
	return nil
}

// FrontDoor names the door that asks by Inside; empty for other requests.
func (c Call[In]) FrontDoor() string { return c.x.inside }

// Mounted is the path at which the API is mounted where the request came: empty by a
// listener of the API's own.
func (c Call[In]) Mounted() string {
	if c.x.atRoot {
		return ""
	}
	return c.x.api.MountedAt()
}

// SplitPath is SplitPath for the pattern of the front door's operation that is called. What
// stands before the rest is as the client has written it.
func (c Call[In]) SplitPath(pattern, path string) (before, rest string, ok bool) {
	prefix := c.x.api.prefix
	before, rest, ok = newPathPattern("", prefix+pattern).rest(path)
	return c.Mounted() + strings.TrimPrefix(before, prefix), rest, ok
}

// SetHeader says something more in the head of an answer that does not stream.
func (c Call[In]) SetHeader(name, value string) {
	if c.x.headers == nil {
		c.x.headers = map[string]string{}
	}
	c.x.headers[name] = value
}

// SetETag says which revision the answer is of.
func (c Call[In]) SetETag(revision string) { c.x.etag = `"` + revision + `"` }

// Withhold says that the answer holds a secret: it is shown once, and never kept for an
// Idempotency-Key as it is. again is answered to who asks again with the key; nil means
// that the request is carried out again, which must do no more than give another
// secret.
func (c Call[In]) Withhold(again any) (err error) {
	c.x.secret = true
	if again != nil {
		c.x.again, err = encode(again)
	}
	return err
}

// errTooManyConnections refuses a request by a connection too many.
var errTooManyConnections = sdk.Errorf(sdk.CodeQuotaExceeded, "The tenant has as many connections open as it may. Close some, or use those that are open for further requests.")

// errTooManyBodies refuses a body for which there is no memory.
var errTooManyBodies = sdk.Errorf(sdk.CodeQuotaExceeded, "The bodies of the requests that are under way are as large as they may be together. Wait for some of these to end.")

// None stands for a body that there is not.
type None struct{}

// Handler answers a request at once: with a status and an answer, or with an error that
// becomes a problem.
type Handler[In, Out any] func(ctx context.Context, c Call[In]) (status int, answer Out, err error)

// EventHandler answers a request with events. An error that it returns becomes the last
// of them, or a problem when there was none before.
type EventHandler[In any] func(ctx context.Context, c Call[In], to *EventStream) error

// Register binds a handler to its route and describes it in the document, by the types
// of the request and of the answer.
func Register[In, Out any](a *API, op Operation, handle Handler[In, Out]) {
	RegisterEither(a, op, nil, handle, nil)
}

// RegisterEither binds an operation that answers with one Out, or with events if
// the client prefers those and the request allows it: streams may be nil, which is
// always. What fails before the first event is answered as usual.
func RegisterEither[In, Out any](a *API, op Operation, streams func(In) bool, answer Handler[In, Out], events EventHandler[In]) {
	s, body := a.server, bodyOf[In](a)
	a.describe(op, reflect.TypeFor[In](), reflect.TypeFor[Out](), body)
	if (body != nil || isRaw[In]()) && events == nil {
		s.reading = append(s.reading, newPathPattern(op.Method, a.path(op)))
	}
	bind(a, op, func(c *fiber.Ctx, call Call[In]) error {
		if err := readBody(c, body, &call.Body); err != nil {
			return err
		}
		if events != nil && wantsEvents(c) && (streams == nil || streams(call.Body)) {
			call.x.keepBody(c)
			c.Request().ResetBody() // else it is kept as long as the stream
			return s.handOver(c, func(w http.ResponseWriter, r *http.Request) error { return sendEvents(w, r, call, events) })
		}
		ctx, cancel := s.contextOf(c)
		defer cancel()
		status, out, err := answer(ctx, call)
		if err != nil {
			return err
		}
		return send(c, call.x, status, out)
	})
}

// wantsEvents reports whether the client prefers events to one answer. To HEAD
// there would be nothing to send, and no end maybe.
func wantsEvents(c *fiber.Ctx) bool {
	return c.Method() != fiber.MethodHead && c.Accepts(fiber.MIMEApplicationJSON, sse.MediaType) == sse.MediaType
}

// Stream binds a handler that answers as net/http does. A body of its type is read
// before, as that of other operations; None leaves it to the handler, as a stream, if
// there is one.
func Stream[In any](a *API, op Operation, handle func(w http.ResponseWriter, r *http.Request, c Call[In]) error) {
	op.streams = true
	body := bodyOf[In](a)
	a.describe(op, reflect.TypeFor[In](), nil, body)
	if isRaw[In]() {
		a.server.reading = append(a.server.reading, newPathPattern(op.Method, a.path(op)))
	} else if body == nil {
		a.server.holding = append(a.server.holding, newPathPattern(op.Method, a.path(op)))
	}
	bind(a, op, func(c *fiber.Ctx, call Call[In]) error {
		if err := readBody(c, body, &call.Body); err != nil {
			return err
		}
		if body != nil || isRaw[In]() {
			call.x.keepBody(c)
			c.Request().ResetBody()
		}
		return a.server.handOver(c, func(w http.ResponseWriter, r *http.Request) error { return handle(w, r, call) })
	})
}

// StreamEvents is Stream for an operation that answers with nothing but events.
func StreamEvents(a *API, op Operation, handle EventHandler[None]) {
	Stream(a, op, func(w http.ResponseWriter, r *http.Request, c Call[None]) error { return sendEvents(w, r, c, handle) })
}

// Receive binds a handler whose request is a stream and whose answer is not. It is
// refused a body that is compressed, unless it consumes archives.
func Receive[Out any](a *API, op Operation, handle func(r *http.Request, c Call[None]) (Out, error)) {
	op.streams = true
	a.describe(op, nil, reflect.TypeFor[Out](), nil)
	a.server.holding = append(a.server.holding, newPathPattern(op.Method, a.path(op)))
	bind(a, op, func(c *fiber.Ctx, call Call[None]) error {
		return a.server.handOver(c, func(w http.ResponseWriter, r *http.Request) error {
			if r.Header.Get("Content-Range") != "" {
				return BadRequest(http.StatusBadRequest, "A part of a file cannot be written: there must be no Content-Range.")
			}
			encoding := r.Header.Get("Content-Encoding")
			if plain := encoding == "" || encoding == "identity"; !plain && (encoding != "gzip" || op.Consumes != MediaTar) {
				return BadRequest(http.StatusUnsupportedMediaType, "The body must not be compressed.")
			}
			answer, err := handle(r, call)
			if err != nil {
				return err
			}
			body, err := encode(answer)
			if err != nil {
				return err
			}
			w.Header().Set("Content-Type", "application/json")
			_, err = w.Write(body)
			return err
		})
	})
}

// bodyOf is nil for None and Raw.
func bodyOf[In any](a *API) *decoder {
	in := reflect.TypeFor[In]()
	if in == reflect.TypeFor[None]() || isRaw[In]() {
		return nil
	}
	return newDecoder(a.document.schemas(), a.document.schemaOf(in))
}

func isRaw[In any]() bool { return reflect.TypeFor[In]() == reflect.TypeFor[Raw]() }

func readBody(c *fiber.Ctx, body *decoder, into any) error {
	if raw, ok := into.(*Raw); ok {
		if encoding := c.Get(fiber.HeaderContentEncoding); encoding != "" && encoding != "identity" {
			return BadRequest(http.StatusUnsupportedMediaType, "The body must not be compressed.")
		}
		*raw = bytes.Clone(c.BodyRaw())
		return nil
	}
	if body == nil {
		return nil
	}
	return body.decode(c.Get(fiber.HeaderContentType), c.Get(fiber.HeaderContentEncoding), c.BodyRaw(), into)
}

// bind leads requests of the operation to handle, after authentication. Their
// body has not been looked at.
func bind[In any](a *API, op Operation, handle func(c *fiber.Ctx, call Call[In]) error) {
	a.operations = append(a.operations, op)
	route, s := strings.NewReplacer("{", ":", "}", "").Replace(a.path(op)), a.server
	handler := func(c *fiber.Ctx) error {
		x := s.exchangeOf(c)
		x.api, x.route, x.quiet = a, a.route(op), op.Quiet
		call := Call[In]{
			Path: c.AllParams(), Host: string(c.Request().Header.Host()), Scheme: x.scheme,
			RawQuery: string(c.Request().URI().QueryString()), RequestID: x.requestID, Timeout: s.requestTimeout(), x: x,
		}
		var err error
		if call.Tenant, err = admit(a, op, c, x); err != nil {
			return err
		}
		if op.Conditional {
			call.IfMatch = c.Get(fiber.HeaderIfMatch)
		}
		if op.Continues {
			if call.LastEventID, err = lastEventID(c); err != nil {
				return err
			}
		}
		if !op.AnyQuery {
			if call.Query, err = parseQuery(string(c.Request().URI().QueryString()), op.Query); err != nil {
				return err
			}
		}
		if call.Key, err = s.keyOf(c, op); err != nil {
			return err
		}
		if call.Key == "" {
			return handle(c, call)
		}
		id := idempotency.ID{Tenant: call.Tenant.Name, Since: call.Tenant.Since, Key: call.Key}
		return s.once(c, op, id, fingerprintOf(c, x.route), func() error { return handle(c, call) })
	}
	if op.Method == http.MethodGet {
		s.app.Get(route, handler) // answers HEAD as well
	} else {
		s.app.Add(op.Method, route, handler)
	}
}

const headerLastEventID = "Last-Event-ID"

// maxEventID is the longest ID of an event, in bytes.
const maxEventID = 128

// lastEventID reads the header, which a client that reconnects sends by itself.
func lastEventID(c *fiber.Ctx) (string, error) {
	given := c.Request().Header.PeekAll(headerLastEventID)
	if len(given) == 0 {
		return "", nil
	}
	if len(given) > 1 || len(given[0]) > maxEventID {
		return "", sdk.FieldErrorf(sdk.CodeInvalidRequest, headerLastEventID, "must be given once, with at most %d bytes", maxEventID)
	}
	return string(given[0]), nil
}

// path of a route, as the server is asked for it.
func (a *API) path(op Operation) string {
	if a.opts.Name == "" {
		return op.Path
	}
	return a.prefix + op.Path
}

// route stands for an operation in the log and in the metrics.
func (a *API) route(op Operation) string {
	if a.opts.Name == "" {
		return op.Path
	}
	return "/" + a.opts.Name + op.Path
}

// admit finds out whether the caller may ask, and counts it.
func admit(a *API, op Operation, c *fiber.Ctx, x *exchange) (tenant.Tenant, error) {
	if op.Public {
		return tenant.Tenant{}, nil
	}
	who := a.callerOf(&c.Request().Header)
	if op.Admin {
		if err := a.server.requireAdmin(who); err != nil {
			return tenant.Tenant{}, err
		}
		x.admin = true
		a.server.beginSpan(c, x)
		x.ticket.Trust()
		return tenant.Tenant{}, nil
	}
	if !who.known {
		return tenant.Tenant{}, who.stranger()
	}
	x.tenant = who.tenant.Name
	a.server.beginSpan(c, x)
	if !x.ticket.Own(x.tenant) {
		return tenant.Tenant{}, errTooManyConnections
	}
	return who.tenant, a.server.countRequest(c, x.tenant)
}

// countRequest counts a request of a tenant, and says in the answer's headers how
// many more may come, as draft-ietf-httpapi-ratelimit-headers has it.
func (s *Server) countRequest(c *fiber.Ctx, tenant string) error {
	if s.opts.Rates == nil || s.exchangeOf(c).hop != nil { // it was counted where it came
		return nil
	}
	remaining, limit, err := s.opts.Rates.Request(tenant)
	if limit > 0 {
		burst := max(1, math.Ceil(limit))
		c.Set("RateLimit-Policy", fmt.Sprintf(`"requests";q=%g;w=%g`, burst, max(1, math.Ceil(burst/limit))))
		c.Set("RateLimit", fmt.Sprintf(`"requests";r=%g;t=%g`, math.Floor(remaining), math.Ceil((burst-remaining)/limit)))
	}
	return err
}

// send writes an answer; None has no body.
func send(c *fiber.Ctx, x *exchange, status int, answer any) error {
	c.Status(status)
	if x.etag != "" {
		c.Set(fiber.HeaderETag, x.etag)
	}
	for name, value := range x.headers {
		c.Set(name, value)
	}
	if _, empty := answer.(None); empty {
		return nil
	}
	body, err := encode(answer)
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(body)
	return nil
}

// handOver lets handle answer the request when the caller has returned. Nothing
// of Fiber reaches it.
func (s *Server) handOver(c *fiber.Ctx, handle StreamHandler) error {
	x, method := s.exchangeOf(c), method(c)
	err := s.streams.Take(c.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.answerStream(&streamWriter{ResponseWriter: w, x: x}, r, x, method, handle)
	}))
	switch {
	case errors.Is(err, handover.ErrShuttingDown):
		return sdk.Errorf(sdk.CodeUnavailable, "The broker is shutting down.")
	case err != nil:
		return BadRequest(http.StatusBadRequest, "The request is not valid HTTP: "+err.Error()+".")
	}
	x.streams = true
	return nil
}
