package pluginhost

import (
	"maps"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// Phase is where a supervised provider stands.
type Phase string

// The phases.
const (
	PhaseStarting    Phase = "starting"    // not configured yet, for the first time
	PhaseReady       Phase = "ready"       // configured, and healthy as far as is known
	PhaseUnhealthy   Phase = "unhealthy"   // runs, but says that Create would not work
	PhaseRestarting  Phase = "restarting"  // its process died; the next is on its way
	PhaseUnavailable Phase = "unavailable" // failed repeatedly; tried again every now and then
	PhaseDraining    Phase = "draining"    // another process took over; serves its instances to their end
	PhaseStopped     Phase = "stopped"
)

// State is a snapshot of a supervised provider.
type State struct {
	Label string
	Phase Phase
	// Healthy says whether Create should work now.
	Healthy bool
	// Reason says why not, fit for every caller.
	Reason string
	// Details are the facts of the last health probe.
	Details map[string]string
	// Metrics of the last health probe, none while there is no process. Nobody
	// changes them.
	Metrics []sdk.Metric
	// ProbedAt is when that probe was answered.
	ProbedAt time.Time
	// PID of the process, 0 while there is none.
	PID int
	// Restarts counts the processes after the first.
	Restarts int
	// LastError is why the last process died or did not start, nil if none
	// has, and FailedAt when that was; it is for the operator. Stderr has the
	// last words of that process.
	LastError error
	FailedAt  time.Time
	// NextTry is when the next process is started, if none runs and none is about
	// to; else the zero time.
	NextTry time.Time
	// Since is when the phase began.
	Since time.Time
}

// State returns the provider's state.
func (s *Supervised) State() State {
	s.mu.Lock()
	defer s.mu.Unlock()
	state := s.state
	state.Details = maps.Clone(state.Details)
	if s.current != nil && s.current.alive() {
		state.PID = s.current.PID()
	}
	if s.current == nil && s.nextTry.After(time.Now()) {
		state.NextTry = s.nextTry
	}
	return state
}

// enter changes the state and wakes who waits for a change. Stopped is for good.
func (s *Supervised) enter(phase Phase, change func(*State)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.Phase == PhaseStopped || s.state.Phase == PhaseDraining && phase != PhaseStopped {
		return
	}
	if s.state.Phase != phase {
		s.state.Phase, s.state.Since = phase, time.Now()
	}
	s.state.Healthy = phase == PhaseReady
	change(&s.state)
	close(s.changed)
	s.changed = make(chan struct{})
}
