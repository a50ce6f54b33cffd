package daytonafake

import (
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxPage is the most that a page has.
const maxPage = 200

var allStates = []string{
	"creating", "restoring", "destroyed", "destroying", "started", "stopped", "starting", "stopping", "error", "build_failed", "pending_build",
	"building_snapshot", "unknown", "pulling_snapshot", "archived", "archiving", "resizing", "snapshotting", "forking", "pausing", "paused", "resuming",
}

// list serves GET /sandbox: newest first, in pages by a cursor.
func (s calls) list(r *http.Request) (any, error) {
	query, err := plain(r, "cursor", "limit", "id", "name", "labels", "states", "snapshots", "regionIds")
	if err != nil {
		return nil, err
	}
	limit, err := number(query, "limit", 100)
	if err != nil {
		return nil, err
	}
	before := s.countMade()
	if text := query.Get("cursor"); text != "" {
		raw, err := base64.RawURLEncoding.DecodeString(text)
		if before, _ = strconv.Atoi(string(raw)); err != nil || before < 1 {
			return nil, bad("Invalid cursor")
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.matching(query)
	if err != nil {
		return nil, err
	}
	items, next := []any{}, any(nil)
	for _, sb := range found {
		if sb.number >= before {
			continue
		}
		if len(items) == min(limit, s.options.PageSize) {
			next = base64.RawURLEncoding.EncodeToString([]byte(strconv.Itoa(before)))
			break
		}
		item := s.object(sb, sb.look())
		for _, name := range []string{"env", "buildInfo", "volumes"} { // lists do not tell of these
			delete(item, name)
		}
		items = append(items, item)
		before = sb.number
	}
	return map[string]any{"items": items, "nextCursor": next}, nil
}

func (s *Server) countMade() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// pages serves GET /sandbox/paginated, the older list.
func (s calls) pages(r *http.Request) (any, error) {
	query, err := plain(r, "page", "limit", "id", "name", "labels", "states", "snapshots", "regions")
	if err != nil {
		return nil, err
	}
	limit, err := number(query, "limit", 100)
	if err != nil {
		return nil, err
	}
	page, err := number(query, "page", 1)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found, err := s.matching(query)
	if err != nil {
		return nil, err
	}
	limit = min(limit, s.options.PageSize)
	items := []any{}
	for i, sb := range found {
		if i/limit == page-1 {
			items = append(items, s.object(sb, sb.look()))
		}
	}
	return map[string]any{"items": items, "total": len(found), "page": page, "totalPages": (len(found) + limit - 1) / limit}, nil
}

func number(query url.Values, name string, otherwise int) (int, error) {
	if !query.Has(name) {
		return otherwise, nil
	}
	n, err := strconv.Atoi(query.Get(name))
	if err != nil || n < 1 || name == "limit" && n > maxPage {
		return 0, bad(name + " must be a number of the range")
	}
	return n, nil
}

// matching are the sandboxes that a query asks for, the newest first. It needs s.mu.
func (s *Server) matching(query url.Values) ([]*sandbox, error) {
	var labels map[string]string
	if text := query.Get("labels"); text != "" {
		if err := json.Unmarshal([]byte(text), &labels); err != nil {
			return nil, bad("Invalid labels JSON format")
		}
	}
	several := func(name string) []string {
		var all []string
		for _, text := range query[name] {
			all = append(all, strings.Split(text, ",")...)
		}
		return all
	}
	states := several("states")
	for _, state := range states {
		if !slices.Contains(allStates, state) {
			return nil, bad("each value in states must be one of the following values: " + strings.Join(allStates, ", "))
		}
	}
	oneOf := func(all []string, value string) bool { return len(all) == 0 || slices.Contains(all, value) }
	where := append(several("regionIds"), several("regions")...)
	var found []*sandbox
	for _, sb := range s.sandboxes {
		if sb.state == stateDestroyed && len(sb.way) == 0 {
			continue
		}
		if sb.unlisted > 0 {
			sb.unlisted--
			continue
		}
		has := true
		for name, value := range labels {
			label, there := sb.labels[name]
			has = has && there && label == value
		}
		if has && oneOf(states, sb.shown()) && oneOf(several("snapshots"), sb.snapshot) && oneOf(where, sb.target) &&
			strings.HasPrefix(sb.name, query.Get("name")) && strings.HasPrefix(sb.id, query.Get("id")) {
			found = append(found, sb)
		}
	}
	slices.SortFunc(found, func(a, b *sandbox) int { return b.number - a.number })
	return found, nil
}

// snapshot is what sandboxes are made from.
type snapshot struct {
	id, name, state string
	size            size
	created         time.Time
}

func (sn *snapshot) object() map[string]any {
	return map[string]any{
		"id": sn.id, "general": true, "name": sn.name, "imageName": sn.name, "state": sn.state, "size": 0.5, "entrypoint": []string{"sleep", "infinity"},
		"cpu": sn.size.CPU, "gpu": 0, "mem": sn.size.Memory, "disk": sn.size.Disk, "errorReason": nil, "createdAt": instant(sn.created),
		"updatedAt": instant(sn.created), "lastUsedAt": nil, "sourceSandboxId": nil, "regionIds": regions,
	}
}

// snapshotOf is the one with an ID or name, which must be active. It needs s.mu.
func (s *Server) snapshotOf(name string) (*snapshot, error) {
	sn := s.namedSnapshot(name)
	switch {
	case sn == nil:
		return nil, bad("Snapshot " + name + " not found. Did you add it through the Daytona Dashboard?")
	case sn.state != "active":
		return nil, bad("Snapshot " + name + " is " + sn.state)
	}
	return sn, nil
}

func (s *Server) namedSnapshot(name string) *snapshot {
	for _, sn := range s.snapshots {
		if sn.id == name || sn.name == name {
			return sn
		}
	}
	return nil
}

func (s calls) getSnapshot(r *http.Request) (any, error) {
	if _, err := plain(r); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if sn := s.namedSnapshot(r.PathValue("id")); sn != nil {
		return sn.object(), nil
	}
	return nil, &problem{http.StatusNotFound, "Snapshot with ID or name " + r.PathValue("id") + " not found"}
}

func (s calls) listSnapshots(r *http.Request) (any, error) {
	query, err := plain(r, "page", "limit", "name", "sort", "order")
	if err != nil {
		return nil, err
	}
	limit, err := number(query, "limit", 100)
	if err != nil {
		return nil, err
	}
	page, err := number(query, "page", 1)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	items, names := []any{}, slices.Sorted(maps.Keys(s.snapshots))
	for i, name := range names {
		if i/limit == page-1 {
			items = append(items, s.snapshots[name].object())
		}
	}
	return map[string]any{"items": items, "total": len(names), "page": page, "totalPages": (len(names) + limit - 1) / limit}, nil
}
