package api

import (
	"context"
	"net/http"
	"reflect"
	"strings"

	"github.com/gofiber/fiber/v2"

	"github.com/sandbox-broker/sandbox-broker/broker/admission"
	"github.com/sandbox-broker/sandbox-broker/broker/idempotency"
	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// operation describes a route, once for Fiber and once for the document.
type operation struct {
	method string
	// path as OpenAPI writes it: /instances/{id}. A * at its end stands for any
	// further path, {path} in the document.
	path string
	// query lists the parameters that it takes there; it refuses others.
	query []parameter
	// anyQuery operations pass their query on as it is.
	anyQuery bool
	// resumes means that carrying it out once more gives what the first time gave.
	resumes bool
	// streams is set by stream.
	streams bool
	id      string
	tag     string
	summary string
	details string
	// public operations need no token, those of admin an administrator's.
	public, admin bool
	// conditional operations take If-Match, tagged ones answer with an ETag: the
	// revision of the configuration.
	conditional, tagged bool
	// success lists the statuses of answers that are not problems.
	success []int
	// consumes and produces are the media types of bodies that stream; empty
	// where there is none, and for those that are types of ours.
	consumes, produces string
	// events are what an answer of type text/event-stream consists of.
	events []event
	// codes that it may refuse with, beyond those that every operation of its
	// kind has.
	codes []sdk.Code
}

// anyMediaType is that of bodies that are passed on, if there are any.
const anyMediaType = "*/*"

// call is one request as a handler sees it: a plain copy, without Fiber.
type call[In any] struct {
	tenant tenant.Tenant
	// id is the path's parameter of that name, path has the others.
	id   string
	path map[string]string
	// host is where the client believes to have sent the request.
	host string
	// scheme is http or https: how the request came to the broker itself.
	scheme string
	// ticket of the connection that the request came by.
	ticket *admission.Ticket
	query  query
	// ifMatch is the header of that name, of a conditional operation.
	ifMatch string
	// key is the request's Idempotency-Key.
	key  string
	body In
}

// errTooManyConnections refuses a request by a connection too many.
var errTooManyConnections = sdk.Errorf(sdk.CodeQuotaExceeded, "The tenant has as many connections open as it may. Close some, or use those that are open for further requests.")

// none stands for a body that there is not.
type none struct{}

// register binds a handler to its route and describes it in the document. The
// handler's types are the request's and the answer's; it returns the status and
// the answer, or an error that becomes a problem.
func register[In, Out any](s *Server, op operation, handle func(ctx context.Context, c call[In]) (int, Out, error)) {
	in, out := reflect.TypeFor[In](), reflect.TypeFor[Out]()
	body := bodyDecoder(s, in)
	s.document.add(op, in, out, body)
	if body != nil {
		s.reading = append(s.reading, newPathPattern(op))
	}
	bind(s, op, func(c *fiber.Ctx, request call[In]) error {
		if err := readBody(c, body, &request.body); err != nil {
			return err
		}
		ctx, cancel := s.contextOf(c)
		defer cancel()
		status, answer, err := handle(ctx, request)
		if err != nil {
			return err
		}
		return send(c, status, answer)
	})
}

// bodyDecoder is nil for none.
func bodyDecoder(s *Server, in reflect.Type) *decoder {
	if in == reflect.TypeFor[none]() {
		return nil
	}
	return newDecoder(s.document.schemas(), s.document.schemaOf(in))
}

func readBody(c *fiber.Ctx, body *decoder, into any) error {
	if body == nil {
		return nil
	}
	return body.decode(c.Get(fiber.HeaderContentType), c.Get(fiber.HeaderContentEncoding), c.BodyRaw(), into)
}

// bind leads requests of the operation to handle, after authentication. Their
// body has not been looked at.
func bind[In any](s *Server, op operation, handle func(c *fiber.Ctx, request call[In]) error) {
	route := strings.NewReplacer("{", ":", "}", "").Replace(op.path)
	add := s.app.Get // answers HEAD as well
	if op.method != http.MethodGet {
		add = func(path string, handlers ...fiber.Handler) fiber.Router {
			return s.app.Add(op.method, path, handlers...)
		}
	}
	add(route, func(c *fiber.Ctx) error {
		exchangeOf(c).route = op.path
		request := call[In]{}
		switch {
		case op.admin:
			if err := s.authenticateAdmin(&c.Request().Header); err != nil {
				return err
			}
			exchangeOf(c).admin = true
			admitted(c.Context().Conn()).Trust()
		case !op.public:
			who, err := s.authenticate(&c.Request().Header)
			if err != nil {
				return err
			}
			exchangeOf(c).tenant = who.Name
			request.tenant = who
			if !admitted(c.Context().Conn()).Own(who.Name) {
				return errTooManyConnections
			}
			if err := s.countRequest(c, who.Name); err != nil {
				return err
			}
		}
		request.id = c.Params("id")
		request.path = c.AllParams()
		if op.conditional {
			request.ifMatch = c.Get(fiber.HeaderIfMatch)
		}
		request.host = string(c.Request().Header.Host())
		request.ticket = admitted(c.Context().Conn())
		request.scheme = "http"
		if c.Context().IsTLS() {
			request.scheme = "https"
		}
		if !op.anyQuery {
			var err error
			if request.query, err = parseQuery(string(c.Request().URI().QueryString()), op.query); err != nil {
				return err
			}
		}
		key, err := s.keyOf(c, op)
		if err != nil {
			return err
		}
		if key == "" {
			return handle(c, request)
		}
		request.key = key
		return s.once(c, op, idempotency.ID{Tenant: request.tenant.Name, Since: request.tenant.Since, Key: key}, func() error { return handle(c, request) })
	})
}

// send writes an answer; none has no body.
func send(c *fiber.Ctx, status int, answer any) error {
	c.Status(status)
	if tagged, ok := answer.(interface{ entityTag() string }); ok {
		c.Set(fiber.HeaderETag, tagged.entityTag())
	}
	if _, empty := answer.(none); empty {
		return nil
	}
	body, err := encode(answer)
	if err == nil {
		err = withhold(c, answer)
	}
	if err != nil {
		return err
	}
	c.Set(fiber.HeaderContentType, fiber.MIMEApplicationJSON)
	c.Response().SetBodyRaw(body)
	return nil
}
