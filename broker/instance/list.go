package instance

import (
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/broker/tenant"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// ListRequest selects instances; empty fields select all.
type ListRequest struct {
	// Labels that an instance must have, with these values.
	Labels map[string]string
	// Session and Provider by name.
	Session, Provider string
	// Limit of instances in the answer; 0 for none.
	Limit int
	// After is the ID of the last instance that the caller has already.
	After string
}

// Page is a part of a list.
type Page struct {
	Instances []Info
	// More says that the limit left some out.
	More bool
}

// List returns the tenant's live instances, in the order of their IDs: one that
// stays neither vanishes from the pages of a list nor comes twice, whatever else
// comes and goes meanwhile.
func (s *Service) List(who tenant.Tenant, req ListRequest) Page {
	return s.list(func(id ID) bool { return id.Tenant == who.Name }, req)
}

// list is List for the instances that somebody may see.
func (s *Service) list(visible func(ID) bool, req ListRequest) Page {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	page := Page{Instances: []Info{}}
	for _, id := range slices.Sorted(maps.Keys(s.entries)) {
		e := s.entries[id]
		if !visible(e.id) || e.state != live || id <= req.After || !e.selected(req) || s.retire(e, now) {
			continue
		}
		if req.Limit > 0 && len(page.Instances) == req.Limit {
			page.More = true
			break
		}
		page.Instances = append(page.Instances, e.info(now))
	}
	return page
}

func (e *entry) selected(req ListRequest) bool {
	if req.Session != "" && req.Session != e.id.Session || req.Provider != "" && req.Provider != e.provider.Label() {
		return false
	}
	for name, value := range req.Labels {
		if v, has := e.labels[name]; !has || v != value {
			return false
		}
	}
	return true
}

// Bounds of a tenant's labels.
const (
	maxLabels     = 50
	maxLabelValue = 256
)

var labelName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9_./-]{0,61}[A-Za-z0-9])?$`)

func checkLabels(labels map[string]string) error {
	if len(labels) > maxLabels {
		return sdk.FieldErrorf(sdk.CodeInvalidRequest, "labels", "has %d labels; at most %d are allowed", len(labels), maxLabels)
	}
	for _, name := range slices.Sorted(maps.Keys(labels)) {
		switch {
		case !labelName.MatchString(name):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "labels", "a name must have 1 to 63 of A-Z a-z 0-9 _ . / - and begin and end with a letter or digit")
		case len(labels[name]) > maxLabelValue || strings.ContainsFunc(labels[name], func(r rune) bool { return r < ' ' || r == 0x7f }):
			return sdk.FieldErrorf(sdk.CodeInvalidRequest, "labels."+name, "must have at most %d bytes and no control characters", maxLabelValue)
		}
	}
	return nil
}
