package e2bfake

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// operation is what a request of the control API may have.
type operation struct {
	// body is nil where there must be none; optional ones may be empty.
	body     shape.Shape
	optional bool
	// query are the parameters, with their forms.
	query map[string]*regexp.Regexp
}

var (
	seconds  = shape.Whole{Max: math.MaxInt32}
	lifetime = shape.Object{Needed: map[string]shape.Shape{"timeout": seconds}}
	texts    = shape.Map{Of: shape.Text{}}

	// A reference is a name, with a namespace before it and a tag behind it if wanted.
	templateForm = regexp.MustCompile(`^([a-zA-Z0-9_-]+/)?[a-zA-Z0-9_-]+(:[a-zA-Z0-9_.-]+)?$`)
	// What names a snapshot is made lower case by the original, which the fake wants done.
	snapshotForm = regexp.MustCompile(`^([a-z0-9_-]+/)?[a-z0-9_-]+(:[a-z0-9_.-]+)?$`)
	// Variables are what the shell and envd can keep.
	variableForm = regexp.MustCompile(`^[^=\x00]+$`)

	newSandbox = shape.Object{
		Needed: map[string]shape.Shape{"templateID": shape.Text{Form: templateForm}},
		Optional: map[string]shape.Shape{
			"timeout": shape.Whole{Min: 1, Max: math.MaxInt32}, "metadata": texts,
			"envVars": shape.Map{Of: shape.Text{}, Names: variableForm}, "secure": shape.Flag{}, "allow_internet_access": shape.Flag{},
			"network": shape.Object{Optional: map[string]shape.Shape{
				"allowPublicTraffic": shape.Flag{}, "allowOut": shape.List{Of: shape.Text{}}, "denyOut": shape.List{Of: shape.Text{}},
				"egressProxy": shape.Lacking{}, "maskRequestHost": shape.Lacking{}, "rules": shape.Lacking{}, "httpsPorts": shape.Lacking{},
			}},
			"autoPause": shape.Lacking{}, "autoPauseMemory": shape.Lacking{}, "autoResume": shape.Lacking{},
			"mcp": shape.Lacking{}, "iam": shape.Lacking{}, "volumeMounts": shape.Lacking{},
		},
	}

	// operations are those of the routes, by their patterns.
	operations = map[string]operation{
		"POST /sandboxes":                 {body: newSandbox},
		"POST /v2/sandboxes":              {body: newSandbox},
		"POST /sandboxes/{id}/connect":    {body: lifetime},
		"POST /v2/sandboxes/{id}/connect": {body: shape.Object{Optional: map[string]shape.Shape{"timeout": seconds, "memory": shape.Only{Value: true}}}},
		"POST /sandboxes/{id}/timeout":    {body: lifetime},
		"POST /sandboxes/{id}/pause":      {body: shape.Object{Optional: map[string]shape.Shape{"memory": shape.Only{Value: true}}}, optional: true},
		"GET /v2/sandboxes": {query: map[string]*regexp.Regexp{
			"metadata": regexp.MustCompile(`.`), "nextToken": regexp.MustCompile(`.`),
			"limit": regexp.MustCompile(`^([1-9][0-9]?|100)$`), "state": regexp.MustCompile(`^(running|paused)(,(running|paused))?$`),
		}},
		"POST /sandboxes/{id}/snapshots": {body: shape.Object{Optional: map[string]shape.Shape{"name": shape.Text{Form: snapshotForm, Most: 200}}}},
		"GET /snapshots": {query: map[string]*regexp.Regexp{
			"limit": regexp.MustCompile(`^([1-9][0-9]?|100)$`), "nextToken": regexp.MustCompile(`.`),
			"sandboxID": regexp.MustCompile(`^[a-z0-9]+$`), "name": snapshotForm,
		}},
		"DELETE /templates/{id}":         {},
		"GET /sandboxes/{id}":            {},
		"DELETE /sandboxes/{id}":         {},
		"GET /templates/aliases/{alias}": {},
	}
)

// check compares a request with what is published of its route. Members that are not
// known are ignored, as by the original, and taken down: see Server.Unread.
func (s *Server) check(pattern string, r *http.Request) error {
	o, known := operations[pattern]
	if !known {
		return fmt.Errorf("nobody has said what %q may have", pattern)
	}
	if err := o.checkQuery(r.URL.RawQuery); err != nil {
		return err
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	switch {
	case o.body == nil && len(body) > 0:
		return errors.New("request body must be empty")
	case o.body == nil, o.optional && len(body) == 0:
		return nil
	}
	found := shape.Check(o.body, body)
	s.mu.Lock()
	for _, at := range found.Unknown {
		s.unread = append(s.unread, pattern+" "+at)
	}
	s.mu.Unlock()
	return found.Err()
}

func (o operation) checkQuery(raw string) error {
	query, err := url.ParseQuery(raw)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(query)) {
		form, known := o.query[name]
		switch {
		case !known:
			return fmt.Errorf("parameter %q in query is not known", name)
		case len(query[name]) != 1:
			return fmt.Errorf("parameter %q in query is there more than once", name)
		case !form.MatchString(query[name][0]):
			return fmt.Errorf("parameter %q in query must be of the form %s", name, form)
		}
	}
	return nil
}

// Unread lists members of bodies that no version of the control API is known to read,
// with their routes. The original ignores them in silence, so that a name that is not
// right has no effect at all.
func (s *Server) Unread() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.unread)
}

var domainForm = regexp.MustCompile(`^(\*\.)?([a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?\.)*[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$|^\*$`)

// checkNetwork has the rules of the network that a schema cannot say.
func checkNetwork(allowed, denied []string) error {
	for _, entry := range denied {
		if !isAddress(entry) {
			return fmt.Errorf("invalid denied CIDR %s", entry)
		}
	}
	for _, entry := range allowed {
		switch {
		case isAddress(entry):
		case !domainForm.MatchString(entry) || strings.Trim(entry, "0123456789.") == "":
			return fmt.Errorf("invalid allowed destination %s", entry)
		case !slices.Contains(denied, "0.0.0.0/0"):
			return fmt.Errorf("domains such as %s can be allowed only where 0.0.0.0/0 is denied", entry)
		}
	}
	return nil
}

func isAddress(entry string) bool {
	if _, err := netip.ParsePrefix(entry); err == nil {
		return true
	}
	_, err := netip.ParseAddr(entry)
	return err == nil
}
