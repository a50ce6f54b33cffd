package e2bfake

import (
	"cmp"
	"encoding/base64"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (sb *sandbox) asListed() map[string]any {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	state := "running"
	if sb.paused {
		state = "paused"
	}
	return map[string]any{
		"templateID": sb.template, "alias": sb.alias, "sandboxID": sb.id, "clientID": clientID,
		"startedAt": sb.startedAt.UTC().Format(time.RFC3339Nano), "endAt": sb.endAt.UTC().Format(time.RFC3339Nano),
		"cpuCount": 2, "memoryMB": 2048, "diskSizeMB": 10240, "state": state, "envdVersion": sb.envdVersion,
		"metadata": maps.Clone(sb.metadata),
	}
}

// list serves GET /v2/sandboxes: newest first, in pages.
func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	wanted, err := parseMetadata(query.Get("metadata"))
	if err != nil {
		problem(w, http.StatusBadRequest, "", "invalid metadata filter")
		return
	}
	limit := 100
	if text := query.Get("limit"); text != "" {
		if limit, err = strconv.Atoi(text); err != nil || limit < 1 || limit > 100 {
			problem(w, http.StatusBadRequest, "", "validation error: limit")
			return
		}
	}
	after, err := base64.URLEncoding.DecodeString(query.Get("nextToken"))
	if err != nil {
		problem(w, http.StatusBadRequest, "", "invalid next token")
		return
	}
	states := strings.Split(cmp.Or(query.Get("state"), "running,paused"), ",")
	s.mu.Lock()
	all := slices.SortedFunc(maps.Values(s.sandboxes), func(a, b *sandbox) int { return strings.Compare(b.position(), a.position()) })
	found := []map[string]any{}
	next, running := "", 0
	for _, sb := range all {
		if sb.isStarting() || !hasAll(sb.metadata, wanted) {
			continue
		}
		if sb.unlisted > 0 {
			sb.unlisted--
			continue
		}
		listed := sb.asListed()
		if !slices.Contains(states, listed["state"].(string)) {
			continue
		}
		if listed["state"] == "running" {
			running++
		}
		switch {
		case len(after) > 0 && sb.position() >= string(after):
		case len(found) == limit:
			next = found[limit-1]["position"].(string)
		default:
			listed["position"] = sb.position()
			found = append(found, listed)
		}
	}
	s.mu.Unlock()
	if next != "" {
		w.Header().Set("X-Next-Token", base64.URLEncoding.EncodeToString([]byte(next)))
	}
	for _, listed := range found {
		delete(listed, "position")
	}
	if slices.Contains(states, "running") {
		w.Header().Set("X-Total-Running", strconv.Itoa(running))
	}
	answer(w, http.StatusOK, found)
}

// position is what lists are ordered by.
func (sb *sandbox) position() string {
	return sb.startedAt.UTC().Format("2006-01-02T15:04:05.000000000Z") + "__" + sb.id
}

// parseMetadata reads a filter: the query was decoded once already, then comes the
// whole, then each key and value.
func parseMetadata(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	whole, err := url.QueryUnescape(text)
	if err != nil {
		return nil, err
	}
	wanted := map[string]string{}
	for pair := range strings.SplitSeq(whole, "&") {
		key, value, _ := strings.Cut(pair, "=")
		if key, err = url.QueryUnescape(key); err != nil {
			return nil, err
		}
		if wanted[key], err = url.QueryUnescape(value); err != nil {
			return nil, err
		}
	}
	return wanted, nil
}

func hasAll(metadata, wanted map[string]string) bool {
	for key, value := range wanted {
		if metadata[key] != value {
			return false
		}
	}
	return true
}
