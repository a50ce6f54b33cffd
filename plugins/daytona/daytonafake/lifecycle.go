package daytonafake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/plugins/daytona/daytonafake/toolbox"
	"github.com/sandbox-broker/sandbox-broker/plugins/e2b/e2bfake/shape"
)

// step is a state on the way to another, and how many looks it lasts.
type step struct {
	state string
	looks int
}

// look is the state that is shown, which passes by being looked at. It needs s.mu.
func (sb *sandbox) look() string {
	shown := sb.shown()
	if len(sb.way) > 0 && sb.way[0].looks > 0 {
		if sb.way[0].looks--; sb.way[0].looks == 0 {
			sb.way = sb.way[1:]
		}
	}
	return shown
}

func (sb *sandbox) shown() string {
	if len(sb.way) > 0 {
		return sb.way[0].state
	}
	return sb.state
}

// arrive has a sandbox arrive at a state by a way. It needs s.mu.
func (s *Server) arrive(sb *sandbox, state string, way ...string) {
	sb.state, sb.way, sb.changed = state, nil, s.now()
	for _, passed := range way {
		looks, set := s.linger[passed]
		if !set {
			looks = 1
		}
		if looks != 0 {
			sb.way = append(sb.way, step{passed, looks})
		}
	}
}

func (s calls) create(r *http.Request) (any, error) {
	var c creation
	accepted := newSandbox
	if s.options.Frozen {
		accepted = frozenSandbox
	}
	if err := read(r, accepted, &c); err != nil {
		return nil, err
	}
	if text := c.problem(s.options); text != "" {
		return nil, bad(text)
	}
	sb, err := s.admit(&c)
	if err != nil {
		return nil, err
	}
	defer sb.operation.Unlock()
	// What has begun is finished, whether or not the client waits.
	err = sb.prepare(s.options)
	s.mu.Lock()
	fails := sb.state != stateStarted
	s.mu.Unlock()
	if err == nil && !fails {
		err = s.launch(sb)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.arrive(sb, stateError)
		sb.reason = err.Error()
	}
	return s.object(sb, sb.shown()), nil
}

// admit takes a new sandbox in, whose operation is locked.
func (s *Server) admit(c *creation) (*sandbox, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sb := &sandbox{
		id: newID(), target: cmp.Or(c.Target, regions[0]), userName: cmp.Or(c.User, user), token: newToken(),
		env: c.Env, labels: c.Labels, public: c.Public, network: c.network, number: s.made, created: s.now(), active: s.now(), unlisted: s.unlisted,
		autoStop: 15, autoPause: c.AutoPauseInterval, autoArchive: 7 * 24 * 60, autoDelete: -1, ttl: c.TTLMinutes,
	}
	if sb.autoPause > 0 {
		sb.autoStop = 0
	}
	for to, given := range map[*int]*int{&sb.autoStop: c.AutoStopInterval, &sb.autoArchive: c.AutoArchiveInterval, &sb.autoDelete: c.AutoDeleteInterval} {
		if given != nil {
			*to = *given
		}
	}
	sb.name, sb.root = cmp.Or(c.Name, sb.id), s.rootOf(sb.id)
	way := []string{"creating"}
	if c.BuildInfo != nil {
		sb.dockerfile = c.BuildInfo.DockerfileContent
		sb.size = size{cmp.Or(c.CPU, usual.CPU), cmp.Or(c.Memory, usual.Memory), cmp.Or(c.Disk, usual.Disk)}
		if !s.built[sb.dockerfile] {
			way = []string{"pending_build", "building_snapshot", "creating"}
		}
	} else {
		snapshot, err := s.snapshotOf(cmp.Or(c.Snapshot, DefaultSnapshot))
		if err != nil {
			return nil, err
		}
		sb.snapshot, sb.size = snapshot.name, snapshot.size
	}
	if s.options.Warm && sb.dockerfile == "" {
		way = nil
	}
	if err := s.fits(sb); err != nil {
		return nil, err
	}
	if f := s.nextFailure(); f != nil {
		s.arrive(sb, f.state, way...)
		sb.reason = f.reason
	} else {
		s.arrive(sb, stateStarted, way...)
		s.built[sb.dockerfile] = true
	}
	s.sandboxes[sb.id] = sb
	s.made++
	sb.operation.Lock()
	return sb, nil
}

// nextFailure needs s.mu.
func (s *Server) nextFailure() *creationFailure {
	s.failures = slices.DeleteFunc(s.failures, func(f *creationFailure) bool { return f.times <= 0 })
	if len(s.failures) == 0 {
		return nil
	}
	s.failures[0].times--
	return s.failures[0]
}

// fits refuses a sandbox for which there is no place. It needs s.mu.
func (s *Server) fits(sb *sandbox) error {
	cpus := sb.size.CPU
	for _, other := range s.sandboxes {
		if other.state == stateDestroyed {
			continue
		}
		if other.name == sb.name {
			return conflict(fmt.Sprintf("Sandbox with name %s already exists", sb.name))
		}
		if other.state == stateStarted {
			cpus += other.size.CPU
		}
	}
	switch {
	case !slices.Contains(regions, sb.target):
		return bad(fmt.Sprintf("Region %s is not available to the organization", sb.target))
	case s.options.MaxCPU > 0 && cpus > s.options.MaxCPU:
		return bad(fmt.Sprintf("Total CPU limit exceeded. Maximum allowed: %d.\nTo increase concurrency limits, upgrade your organization's Tier.", s.options.MaxCPU))
	case s.closed:
		return &problem{http.StatusServiceUnavailable, "closed"}
	}
	return nil
}

func (s calls) get(r *http.Request) (any, error) {
	if _, err := plain(r, "verbose"); err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb, err := s.find(r)
	if err != nil {
		return nil, err
	}
	return s.object(sb, sb.look()), nil
}

// object is a sandbox as the API tells of it. It needs s.mu.
func (s *Server) object(sb *sandbox, state string) map[string]any {
	desired := sb.state
	if desired == stateError || desired == "build_failed" {
		desired = stateStarted
	}
	o := map[string]any{
		"id": sb.id, "organizationId": "5f2e6d1c-0000-4000-8000-000000000001", "name": sb.name, "user": sb.userName,
		"env": maps.Clone(sb.env), "labels": maps.Clone(sb.labels), "public": sb.public, "networkBlockAll": sb.network.NetworkBlockAll,
		"target": sb.target, "cpu": sb.size.CPU, "gpu": 0, "memory": sb.size.Memory, "disk": sb.size.Disk,
		"state": state, "desiredState": desired, "recoverable": sb.recoverable, "backupState": "None",
		"autoStopInterval": sb.autoStop, "autoArchiveInterval": sb.autoArchive, "autoDeleteInterval": sb.autoDelete,
		"createdAt": instant(sb.created), "updatedAt": instant(sb.changed), "lastActivityAt": instant(sb.active),
		"sandboxClass": s.options.Class, "runnerId": "runner-1", "toolboxProxyUrl": s.URL + "/toolbox",
	}
	for name, value := range map[string]string{
		"snapshot": sb.snapshot, "networkAllowList": sb.network.NetworkAllowList, "domainAllowList": sb.network.DomainAllowList,
	} {
		if value != "" {
			o[name] = value
		}
	}
	if sb.reason != "" && state == sb.state {
		o["errorReason"] = sb.reason
	}
	if sb.state == stateStarted {
		o["daemonVersion"] = s.daemonVersion()
	}
	if sb.dockerfile != "" {
		o["buildInfo"] = map[string]any{
			"dockerfileContent": sb.dockerfile, "createdAt": instant(sb.created), "updatedAt": instant(sb.created), "snapshotRef": "build:" + sb.id,
		}
	}
	if !s.options.Frozen {
		o["autoPauseInterval"] = sb.autoPause
		if sb.ttl > 0 {
			o["autoDestroyAt"] = instant(sb.created.Add(time.Duration(sb.ttl) * time.Minute))
		}
	}
	return o
}

// change is one of the state of a sandbox, whose operation is locked.
type change func(s *Server, r *http.Request, sb *sandbox, state string) error

// changes serves a change. While another one is on its way there is none.
func (s *Server) changes(do change) func(*http.Request) (any, error) {
	return func(r *http.Request) (any, error) {
		s.mu.Lock()
		sb, err := s.find(r)
		s.mu.Unlock()
		if err != nil {
			return nil, err
		}
		sb.operation.Lock()
		defer sb.operation.Unlock()
		s.mu.Lock()
		state, busy := sb.state, len(sb.way) > 0
		sb.look()
		s.mu.Unlock()
		if busy {
			return nil, conflict("Sandbox state change in progress")
		}
		if err := do(s, r, sb, state); err != nil {
			return nil, err
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.object(sb, sb.shown()), nil
	}
}

func destroyed(s *Server, r *http.Request, sb *sandbox, _ string) error {
	if _, err := plain(r); err != nil {
		return err
	}
	s.destroyNow(sb)
	return nil
}

func (s *Server) destroyNow(sb *sandbox, before ...string) {
	s.halt(sb)
	_ = sb.erase() // it is tried again at the end
	s.previews.close(sb.id)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrive(sb, stateDestroyed, append(before, "destroying")...)
}

func stopped(s *Server, r *http.Request, sb *sandbox, state string) error {
	if query, err := plain(r, "force"); err != nil || !slices.Contains([]string{"", "true", "false"}, query.Get("force")) {
		return cmp.Or(err, bad("force must be a boolean"))
	}
	if state != stateStarted && state != statePaused {
		return bad("Sandbox is not started")
	}
	s.stopNow(sb)
	return nil
}

// stopNow keeps the files of a sandbox, unless it is an ephemeral one.
func (s *Server) stopNow(sb *sandbox) {
	s.mu.Lock()
	ephemeral := sb.autoDelete == 0
	s.mu.Unlock()
	if ephemeral {
		s.destroyNow(sb, "stopping")
		return
	}
	s.halt(sb)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrive(sb, stateStopped, "stopping")
}

func started(s *Server, r *http.Request, sb *sandbox, state string) error {
	if _, err := plain(r); err != nil {
		return err
	}
	way := map[string][]string{stateStopped: {"starting"}, stateArchived: {"restoring", "starting"}, statePaused: {"resuming"}}[state]
	if way == nil {
		return bad("Sandbox is not in a valid state to be started")
	}
	return s.startNow(r.Context(), sb, way)
}

func (s *Server) startNow(ctx context.Context, sb *sandbox, way []string) error {
	s.mu.Lock()
	err := s.fits(&sandbox{target: sb.target, size: sb.size, name: newID()})
	j := sb.jail
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if j != nil {
		err = freeze(ctx, j, toolbox.Thaw)
	} else {
		err = s.launch(sb)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.arrive(sb, stateStarted, way...)
		sb.active, sb.reason, sb.recoverable = s.now(), "", false
	}
	return err
}

func paused(s *Server, r *http.Request, sb *sandbox, state string) error {
	if _, err := plain(r); err != nil {
		return err
	}
	switch {
	case s.options.Class == containerClass:
		return bad("Sandboxes of this class cannot be paused")
	case state != stateStarted:
		return bad("Sandbox is not started")
	}
	return s.pauseNow(r.Context(), sb)
}

// pauseNow keeps what is in memory. Connections into the sandbox break.
func (s *Server) pauseNow(ctx context.Context, sb *sandbox) error {
	s.mu.Lock()
	j := sb.jail
	s.mu.Unlock()
	if err := freeze(ctx, j, toolbox.Freeze); err != nil {
		return err
	}
	j.Reset()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrive(sb, statePaused, "pausing")
	return nil
}

func archived(s *Server, r *http.Request, sb *sandbox, state string) error {
	if _, err := plain(r); err != nil {
		return err
	}
	if state != stateStopped {
		return bad("Sandbox is not stopped")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.arrive(sb, stateArchived, "archiving")
	return nil
}

func recovered(s *Server, r *http.Request, sb *sandbox, state string) error {
	if _, err := plain(r, "skipStart"); err != nil {
		return err
	}
	s.mu.Lock()
	can := state == stateError && sb.recoverable
	s.mu.Unlock()
	if !can {
		return bad("Sandbox is not recoverable")
	}
	return s.startNow(r.Context(), sb, []string{"starting"})
}

var newSize = shape.Object{Optional: map[string]shape.Shape{"cpu": amount, "memory": amount, "disk": amount}}

// resized lets what runs only grow, and its disk not at all.
func resized(s *Server, r *http.Request, sb *sandbox, state string) error {
	s.mu.Lock()
	before := sb.size
	s.mu.Unlock()
	after := before
	if err := read(r, newSize, &after); err != nil {
		return err
	}
	runs := state == stateStarted
	switch {
	case !runs && state != stateStopped:
		return bad("Sandbox is neither started nor stopped")
	case after == before:
		return bad("Resources are as they were")
	case after.Disk < before.Disk:
		return bad("Disk size cannot be decreased")
	case runs && after.Disk != before.Disk:
		return bad("Disk resize can only be performed on a stopped sandbox")
	case runs && (after.CPU < before.CPU || after.Memory < before.Memory):
		return bad("CPU and memory of a started sandbox cannot be decreased")
	case after.problem() != "":
		return bad(after.problem())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	sb.size = after
	s.arrive(sb, state, "resizing")
	return nil
}
