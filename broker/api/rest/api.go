package rest

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"

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
	// Hosts reports whether a front door is at the root of a host, in lower case and
	// without a port, on the listeners of the server. Nil for none.
	Hosts func(host string) bool
	// Tokens finds all that a request offers as a token; where they differ, it has
	// none. Unless given: BearerTokens.
	Tokens func(Header) []string
	// Authenticate finds whose request it is, where tokens alone do not tell. Unless
	// given, the tenants of the server know them by Tokens. An error is the refusal.
	Authenticate func(context.Context, Header) (tenant.Tenant, error)
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
	// operations in the order in which they were added.
	operations []Operation
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

// Operations returns those of a front door, by its Name, in the order in which they were
// added; nil where there is no such door.
func (s *Server) Operations(door string) []Operation {
	for _, a := range s.apis {
		if door != "" && a.opts.Name == door {
			return slices.Clone(a.operations)
		}
	}
	return nil
}

// describe adds an operation to the document. What front doors answer is described by
// those who made it.
func (a *API) describe(op Operation, in, out reflect.Type, body *decoder) {
	if a.opts.Name == "" {
		a.document.add(op, in, out, body)
	}
}

// Document returns the OpenAPI document of the operations, to which none may be added
// afterwards.
func (a *API) Document() (Document, error) { return a.text() }
