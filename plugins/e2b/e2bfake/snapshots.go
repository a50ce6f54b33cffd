package e2bfake

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/agent"
)

// team is what the account of the key is called.
const team = "our-team"

// keepsSince is the first envd of whose sandboxes there are snapshots.
var keepsSince = []int{0, 5, 0}

// snapshot is a template that was made of a sandbox.
type snapshot struct {
	id        string
	alias     string // empty if it has no name
	createdAt time.Time
	// builds are what was kept, the newest last: keeping again under a name adds one.
	builds []*build
}

// build is what was kept at a moment.
type build struct {
	tag         string
	sandboxID   string
	interpreter bool
	envdVersion string
	files       string // path of the archive
	kept        agent.Kept
}

// reference takes apart what names a template, as the original does.
type reference struct {
	namespace, alias, tag string
}

var referenceForm = regexp.MustCompile(`^(?:([a-z0-9_-]+)/)?([a-z0-9_-]+)(?::([a-z0-9_.-]+))?$`)

func parseReference(text string) (reference, bool) {
	parts := referenceForm.FindStringSubmatch(strings.ToLower(text))
	if parts == nil {
		return reference{}, false
	}
	return reference{parts[1], parts[2], parts[3]}, true
}

const defaultTag = "default"

// snapshotOf finds the snapshot that a reference names. The caller holds mu.
func (s *Server) snapshotOf(ref reference) *snapshot {
	if ref.namespace != "" && ref.namespace != team {
		return nil
	}
	for _, one := range s.snapshots {
		if one.alias != "" && one.alias == ref.alias || ref.namespace == "" && one.id == ref.alias {
			return one
		}
	}
	return nil
}

// buildOf is the newest build of a tag; of any if it is empty.
func (one *snapshot) buildOf(tag string) *build {
	for _, b := range slices.Backward(one.builds) {
		if tag == "" || b.tag == tag {
			return b
		}
	}
	return nil
}

func (one *snapshot) info(b *build) map[string]any {
	names := []string{}
	id := one.id
	if one.alias != "" {
		id = team + "/" + one.alias
		names = append(names, id)
	}
	return map[string]any{"snapshotID": id + ":" + b.tag, "names": names}
}

// keepSandbox serves POST /sandboxes/{id}/snapshots.
func (s *Server) keepSandbox(w http.ResponseWriter, r *http.Request) {
	var req struct {
		Name *string `json:"name"`
	}
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil {
		problem(w, http.StatusBadRequest, "", "Error when parsing request: "+err.Error())
		return
	}
	ref := reference{tag: defaultTag}
	if req.Name != nil {
		var ok bool
		if ref, ok = parseReference(*req.Name); !ok {
			problem(w, http.StatusBadRequest, "", "Invalid name: invalid template ID: "+*req.Name)
			return
		}
		if ref.namespace != "" && ref.namespace != team {
			problem(w, http.StatusBadRequest, "", fmt.Sprintf("namespace '%s' must match your team '%s'", ref.namespace, team))
			return
		}
		ref.tag = cmp.Or(ref.tag, defaultTag)
	}
	sb := s.find(w, r)
	if sb == nil {
		return
	}
	if !isSince(sb.envdVersion, keepsSince) {
		problem(w, http.StatusBadRequest, "", fmt.Sprintf("sandbox envd version must be at least 0.5.0 to create snapshots, current version: %s", sb.envdVersion))
		return
	}
	if state := sb.begins(); state != "" {
		problem(w, http.StatusConflict, "", fmt.Sprintf("Sandbox '%s' cannot be snapshotted while in '%s' state", sb.id, state))
		return
	}
	b, err := s.keep(r.Context(), sb)
	sb.mu.Lock()
	sb.keeping = false
	sb.mu.Unlock()
	if err != nil {
		problem(w, http.StatusInternalServerError, "", "Error creating snapshot template")
		return
	}
	b.tag = ref.tag
	s.mu.Lock()
	one := s.snapshotOf(reference{alias: ref.alias})
	if ref.alias == "" || one == nil {
		one = &snapshot{id: newID()[1:], alias: ref.alias, createdAt: time.Now()}
		s.snapshots = append(s.snapshots, one)
	}
	one.builds = append(one.builds, b)
	info := one.info(b)
	s.mu.Unlock()
	if s.options.RestartAtSnapshot {
		sb.jail.Reset()
	}
	answer(w, http.StatusCreated, info)
}

// begins says that the sandbox is being kept, or returns the state that it is in instead.
func (sb *sandbox) begins() (state string) {
	sb.mu.Lock()
	defer sb.mu.Unlock()
	switch {
	case sb.paused:
		return "paused"
	case sb.keeping:
		return "snapshotting"
	}
	sb.keeping = true
	return ""
}

func isSince(version string, since []int) bool {
	for i, part := range strings.SplitN(version, ".", len(since)) {
		if n, err := strconv.Atoi(part); err != nil || n != since[i] {
			return err == nil && n > since[i]
		}
	}
	return true
}

// keep writes down what is in a sandbox, while it stands still.
func (s *Server) keep(ctx context.Context, sb *sandbox) (b *build, err error) {
	if err := sb.ask(ctx, "/freeze", nil); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, sb.ask(context.WithoutCancel(ctx), "/unfreeze", nil)) }()
	b = &build{sandboxID: sb.id, interpreter: sb.interpreter, envdVersion: sb.envdVersion, files: filepath.Join(s.dir, newID()+".tar")}
	if err := sb.askFor(ctx, "/keep", &b.kept); err != nil {
		return nil, err
	}
	return b, os.Rename(filepath.Join(sb.dir, agent.FilesKept), b.files)
}

// listSnapshots serves GET /snapshots: newest first, in pages.
func (s *Server) listSnapshots(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	limit := 100
	if text := query.Get("limit"); text != "" {
		limit, _ = strconv.Atoi(text) // its form was checked
	}
	after, err := base64.URLEncoding.DecodeString(query.Get("nextToken"))
	if err != nil {
		problem(w, http.StatusBadRequest, "", "Invalid next token")
		return
	}
	var ref reference
	if name := query.Get("name"); name != "" {
		ref, _ = parseReference(name)
		if ref.namespace != "" && ref.namespace != team {
			problem(w, http.StatusBadRequest, "", fmt.Sprintf("namespace '%s' must match your team '%s'", ref.namespace, team))
			return
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := []map[string]any{}
	position := len(s.snapshots)
	if len(after) > 0 {
		if position, err = strconv.Atoi(string(after)); err != nil || position < 0 || position > len(s.snapshots) {
			problem(w, http.StatusBadRequest, "", "Invalid next token")
			return
		}
	}
	for position--; position >= 0 && len(found) < limit; position-- {
		one := s.snapshots[position]
		b := one.buildOf(ref.tag)
		switch {
		case b == nil, ref.alias != "" && s.snapshotOf(ref) != one, query.Has("sandboxID") && query.Get("sandboxID") != b.sandboxID:
			continue
		case s.unlistedSnapshots > 0:
			s.unlistedSnapshots--
			continue
		}
		found = append(found, one.info(b))
	}
	if position >= 0 {
		w.Header().Set("X-Next-Token", base64.URLEncoding.EncodeToString([]byte(strconv.Itoa(position+1))))
	}
	answer(w, http.StatusOK, found)
}

// deleteTemplate serves DELETE /templates/{id}. Those that there are from the beginning are
// somebody else's.
func (s *Server) deleteTemplate(w http.ResponseWriter, r *http.Request) {
	ref, ok := parseReference(r.PathValue("id"))
	if !ok {
		problem(w, http.StatusBadRequest, "", "Invalid template ID: "+r.PathValue("id"))
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.snapshotOf(ref)
	if one == nil {
		problem(w, http.StatusNotFound, "", fmt.Sprintf("template '%s' not found", r.PathValue("id")))
		return
	}
	for _, sb := range s.sandboxes {
		if sb.template == one.id {
			state := "running"
			if sb.isPaused() {
				state = "paused"
			}
			problem(w, http.StatusBadRequest, "", fmt.Sprintf("cannot delete template '%s' because there are %s sandboxes using it", one.id, state))
			return
		}
	}
	s.snapshots = slices.DeleteFunc(s.snapshots, func(other *snapshot) bool { return other == one })
	for _, b := range one.builds {
		_ = os.Remove(b.files)
	}
	w.WriteHeader(http.StatusNoContent)
}

// Snapshots lists the names of those that there are, without their team; the ID where there
// is no name.
func (s *Server) Snapshots() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for _, one := range s.snapshots {
		names = append(names, cmp.Or(one.alias, one.id))
	}
	return names
}

// HideSnapshots leaves snapshots out of the next lists, so many in all.
func (s *Server) HideSnapshots(times int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unlistedSnapshots = times
}
