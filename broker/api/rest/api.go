package rest

import (
	"cmp"
	"net/http"
	"reflect"
	"slices"
	"sync"

	"github.com/gofiber/fiber/v2"
	"github.com/valyala/fasthttp"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
)

// APIOptions say how an API looks, whatever its operations are.
type APIOptions struct {
	// Name of a front door: an API of another system. The paths of its operations are
	// relative to where Mount puts it; unless that is called it is nowhere.
	Name string
	// Prefix of the paths of all operations, such as /e2b. What leads nowhere below it
	// is answered by this API. Empty for the API of all other paths.
	Prefix string
	// Tokens finds all that a request offers as a token; where they differ, it has
	// none. Unless given: BearerTokens.
	Tokens func(Header) []string
	// Authenticate finds whose request it is, where tokens alone do not tell. Unless
	// given, the tenants of the server know them by Tokens. An error is the refusal.
	Authenticate func(Header) (tenant.Tenant, error)
	// Problem puts a refusal into the words of the API. Unless given: a problem of
	// RFC 9457.
	Problem func(err error, requestID string) Problem
	// Document is what the OpenAPI document says beside the operations.
	Document About
}

// API is a set of operations that look alike. Several stand beside each other on one
// server: with the same tenants, limits, log and metrics.
type API struct {
	server *Server
	opts   APIOptions
	// prefix of the paths of its routes.
	prefix string
	// own serves a front door at listeners of its own; nil for other APIs.
	own      *Own
	document *document
	text     func() (Document, error)
}

// NewAPI adds an API, which has no operations yet.
func (s *Server) NewAPI(opts APIOptions) *API {
	if opts.Tokens == nil {
		opts.Tokens = BearerTokens
	}
	if opts.Problem == nil {
		opts.Problem = plainProblem
	}
	opts.Document.Problem = cmp.Or(opts.Document.Problem, reflect.TypeFor[Refusal]())
	a := &API{server: s, opts: opts, prefix: opts.Prefix, document: newDocument(opts.Document)}
	if opts.Name != "" {
		a.prefix = "/" + s.secret + "/" + opts.Name
		a.own = newOwn(a)
	}
	a.text = sync.OnceValues(a.document.text)
	s.apis = append(s.apis, a)
	slices.SortStableFunc(s.apis, func(a, b *API) int { return len(b.prefix) - len(a.prefix) })
	return a
}

// apiOf finds the API that a path belongs to.
func (s *Server) apiOf(path string) *API {
	for _, a := range s.apis { // the longest prefix first
		if _, ok := below(path, a.prefix); ok || a.prefix == "" {
			return a
		}
	}
	return s.strange
}

// describe adds an operation to the document. What front doors answer is described by
// those who made it.
func (a *API) describe(op Operation, in, out reflect.Type, body *decoder) {
	if a.opts.Name == "" {
		a.document.add(op, in, out, body)
	}
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

// Document returns the OpenAPI document of the operations, to which none may be added
// afterwards.
func (a *API) Document() (Document, error) { return a.text() }

// host answers requests that their host leads somewhere, whatever their path.
type host struct {
	api *API
	Host
}

// Host describes requests whose host leads to something, whatever their path. Their
// bodies stream, and no route of a path is reached there.
type Host struct {
	// Route stands for them in the log and in the metrics.
	Route string
	// Match returns the part of a host, in lower case and without a port, that says
	// where it leads.
	Match func(host string) (label string, ok bool)
	// Open finds where it leads, and who owns that.
	Open func(label string) (owner string, handle StreamHandler, err error)
}

// AddHost adds a host to the API. One of a front door is found by the door's own listeners
// too.
func (a *API) AddHost(h Host) { a.server.hosts = append(a.server.hosts, host{a, h}) }

// hostOf finds the host that a request is for, if that leads somewhere: by the own
// listener of a door to what is that door's.
func (s *Server) hostOf(header *fasthttp.RequestHeader, door *API) (found host, label string, ok bool) {
	if len(s.hosts) == 0 {
		return host{}, "", false
	}
	name := hostname(string(header.Host()))
	for _, h := range s.hosts {
		if door != nil && h.api != door {
			continue
		}
		if label, ok = h.Match(name); ok {
			return h, label, true
		}
	}
	return host{}, "", false
}

// answerHost answers a request that its host leads somewhere. It never reaches Fiber's
// routes.
func (s *Server) answerHost(fctx *fasthttp.RequestCtx, h host, label string) {
	c := s.app.AcquireCtx(fctx)
	defer s.app.ReleaseCtx(c)
	x := s.exchangeOf(c)
	x.api, x.route = h.api, h.Route
	if err := s.openHost(c, h, label); err != nil {
		x.code = answerError(c, x, err)
		s.log(x, method(c), c.Response().StatusCode(), err)
	}
}

func (s *Server) openHost(c *fiber.Ctx, h host, label string) error {
	if m := c.Method(); m == http.MethodTrace || m == http.MethodConnect {
		return fiber.NewError(http.StatusMethodNotAllowed)
	}
	owner, handle, err := h.Open(label)
	if err != nil {
		return err
	}
	x := s.exchangeOf(c)
	x.tenant = owner
	if !x.ticket.Own(owner) {
		return errTooManyConnections
	}
	return s.handOver(c, handle)
}
