package rest

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/valyala/fasthttp"
)

// A mounted API is reached below a prefix that may change while the server serves, and at
// the root of listeners of its own. Its routes, which cannot change, stand below a prefix
// that nobody outside this process knows, and requests are led there before anything else
// looks at their path. Who has learned that prefix gets nowhere with it.

// mount leads from a prefix to an API.
type mount struct {
	path string // as clients write it
	api  *API
}

// nowhere is a path that no route has. Mounts are not looked for behind it.
const nowhere = "/nowhere"

// Mount has the requests below path, such as /ragflow, answered by this API from now on,
// and no others. Empty for none: those are answered then as what leads nowhere. The API
// has a Name.
func (a *API) Mount(path string) {
	s := a.server
	s.mounting.Lock()
	defer s.mounting.Unlock()
	var next []mount
	if all := s.mounts.Load(); all != nil {
		next = slices.DeleteFunc(slices.Clone(*all), func(m mount) bool { return m.api == a })
	}
	if path != "" {
		next = append(next, mount{path, a})
	}
	slices.SortFunc(next, func(a, b mount) int { return cmp.Compare(len(b.path), len(a.path)) })
	s.mounts.Store(&next)
}

// MountedAt is the path that Mount was given, empty for none.
func (a *API) MountedAt() string {
	if all := a.server.mounts.Load(); all != nil {
		for _, m := range *all {
			if m.api == a {
				return m.path
			}
		}
	}
	return ""
}

// below cuts a prefix of whole segments off a target.
func below(target, prefix string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(target, prefix)
	return rest, ok && (rest == "" || rest[0] == '/' || rest[0] == '?')
}

// originForm is a target without the scheme and the host that stand before it where it is
// sent as to a proxy. That host is the one of the field Host: see anotherHost.
func originForm(target string) string {
	if strings.HasPrefix(target, "/") {
		return target
	}
	if _, rest, absolute := strings.Cut(target, "://"); absolute {
		target = ""
		if i := strings.IndexAny(rest, "/?#"); i >= 0 {
			target = rest[i:]
		}
	}
	if strings.HasPrefix(target, "/") {
		return target
	}
	return "/" + target
}

// lead sends a request on to the routes that answer it: by a listener of a door's own
// always to those of that door, and so where the door is at the root of the request's host.
// It reports whether its host, or another field, leads it somewhere, so that its path is no
// matter of ours.
func (s *Server) lead(header *fasthttp.RequestHeader, own *API) (elsewhere bool) {
	target, door := string(header.RequestURI()), own
	if door == nil {
		door = s.doorAt(header)
	}
	_, _, byHost := s.byHost(header, own)
	switch {
	case own == nil && s.namesSecret(target):
		header.SetRequestURI(nowhere)
	case byHost:
	case door != nil:
		header.SetRequestURI(door.prefix + originForm(target))
	default:
		s.leadBelow(header, originForm(target))
	}
	if byHost {
		return true
	}
	_, _, byFields := s.byFields(header, own)
	return byFields
}

// leadBelow looks for a mount that a target is below.
func (s *Server) leadBelow(header *fasthttp.RequestHeader, target string) {
	all := s.mounts.Load()
	if all == nil {
		return
	}
	for _, m := range *all {
		if rest, ok := below(target, m.path); ok {
			header.SetRequestURI(m.api.prefix + rest)
			return
		}
	}
}

// namesSecret reports whether a target as it was sent could lead to the routes of a
// mounted API by itself, however it is written: Fiber unescapes a path once.
func (s *Server) namesSecret(target string) bool {
	if strings.Contains(target, "%") {
		target = string(fasthttp.AppendUnquotedArg(nil, []byte(target)))
	}
	return strings.Contains(target, s.secret)
}

// Own serves one front door alone, at the root of listeners of its own: with the routes,
// bounds, encryption and log of its Server, and none of the other routes.
type Own struct {
	api  *API
	http *fasthttp.Server
	open atomic.Bool
}

// newOwn is called when the server itself is complete.
func newOwn(a *API) *Own {
	s := a.server
	usual := s.app.Server()
	mark := func(fctx *fasthttp.RequestCtx) { fctx.SetUserValue(doorKey{}, a) }
	return &Own{api: a, http: &fasthttp.Server{
		Handler: func(fctx *fasthttp.RequestCtx) {
			mark(fctx)
			usual.Handler(fctx)
		},
		ErrorHandler: func(fctx *fasthttp.RequestCtx, err error) {
			mark(fctx)
			usual.ErrorHandler(fctx, err)
		},
		HeaderReceived: func(header *fasthttp.RequestHeader) fasthttp.RequestConfig { return s.headerReceived(header, a, false) },
		ConnState:      usual.ConnState,

		Logger: usual.Logger, LogAllErrors: usual.LogAllErrors,
		Name: usual.Name, NoDefaultServerHeader: usual.NoDefaultServerHeader,
		Concurrency: usual.Concurrency, MaxRequestBodySize: usual.MaxRequestBodySize,
		ReadTimeout: usual.ReadTimeout, WriteTimeout: usual.WriteTimeout, IdleTimeout: usual.IdleTimeout,
		ReadBufferSize: usual.ReadBufferSize, WriteBufferSize: usual.WriteBufferSize,
		DisablePreParseMultipartForm: usual.DisablePreParseMultipartForm,
	}}
}

// Own serves the front door of that Name by listeners of its own; nil if there is none.
func (s *Server) Own(name string) *Own {
	for _, a := range s.apis {
		if name != "" && a.opts.Name == name {
			return a.own
		}
	}
	return nil
}

// Open says whether requests are answered, by the connections that there are too: they
// outlive their listener.
func (o *Own) Open(open bool) { o.open.Store(open) }

// Serve answers requests from the listener until Shutdown, of this or of the Server, or
// until somebody closes it. There may be several at a time.
func (o *Own) Serve(listener net.Listener) error {
	if err := o.api.server.serve(o.http, listener); err != nil {
		return fmt.Errorf("serve the front door %s: %w", o.api.opts.Name, err)
	}
	return nil
}

// Shutdown stops taking connections and waits for the requests in progress until ctx
// ends. Those that stream go on until the Server's Shutdown.
func (o *Own) Shutdown(ctx context.Context) error { return o.http.ShutdownWithContext(ctx) }

// shutdownAll ends all that serves, at the same time.
func (s *Server) shutdownAll(ctx context.Context) []error {
	var group sync.WaitGroup
	errs := make([]error, len(s.apis)+2)
	for i, a := range s.apis {
		if a.own != nil {
			group.Go(func() { errs[i] = a.own.Shutdown(ctx) })
		}
	}
	group.Go(func() { errs[len(s.apis)+1] = s.peers.Shutdown(ctx) })
	errs[len(s.apis)] = s.app.ShutdownWithContext(ctx)
	group.Wait()
	return errs
}
