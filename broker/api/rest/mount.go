package rest

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"slices"
	"strings"

	"github.com/valyala/fasthttp"
)

// A mounted API is reached below a prefix that may change while the server serves. Its
// routes, which cannot change, stand below a prefix that nobody outside this process
// knows, and requests are led there before anything else looks at their path.

// mount leads from a prefix to an API.
type mount struct {
	path string // as clients write it
	api  *API
}

// secretPrefix is where the routes of a mounted API stand.
func secretPrefix() string { return "/" + rand.Text() }

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

// lead sends a request that is for a mounted API on to its routes.
func (s *Server) lead(header *fasthttp.RequestHeader) {
	all := s.mounts.Load()
	if all == nil || len(*all) == 0 {
		return
	}
	uri := header.RequestURI()
	for _, m := range *all {
		if !bytes.HasPrefix(uri, []byte(m.path)) {
			continue
		}
		if rest, ok := below(string(uri), m.path); ok {
			header.SetRequestURI(m.api.prefix + rest)
			return
		}
	}
}
