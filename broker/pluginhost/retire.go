package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// drainTimeout bounds a plugin's Drain. It is a courtesy; nobody waits for more.
const drainTimeout = 10 * time.Second

// AwaitHealthy waits until the provider has been configured and has answered a
// health probe well. Its error says what is in the way: at once when the first
// attempt to start failed, else what was so when ctx ended.
func (s *Supervised) AwaitHealthy(ctx context.Context) error {
	if err := s.Started(ctx); err != nil {
		return err
	}
	return s.awaitProbe(ctx, PhaseStopped)
}

// AwaitWell waits until the provider answers a health probe well, however many starts
// that takes. It gives up at once on one that is unavailable.
func (s *Supervised) AwaitWell(ctx context.Context) error {
	return s.awaitProbe(ctx, PhaseStopped, PhaseUnavailable)
}

// awaitProbe waits until a health probe was answered well, or until the provider is in
// one of the phases that it is not waited for in.
func (s *Supervised) awaitProbe(ctx context.Context, hopeless ...Phase) error {
	for {
		s.mu.Lock()
		state, probed, changed := s.state, s.probed, s.changed
		s.mu.Unlock()
		if probed && state.Healthy {
			return nil
		}
		if slices.Contains(hopeless, state.Phase) {
			return s.notReady(nil)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return s.notReady(context.Cause(ctx))
		}
	}
}

// Outdated reports whether the file that the plugin would be started from now is
// another than the one that runs, and its fingerprint. A file that is missing is
// none.
func (s *Supervised) Outdated() (fingerprint string, outdated bool) {
	s.mu.Lock()
	current := s.current
	s.mu.Unlock()
	if current == nil {
		return "", false // whatever is started next is the newest
	}
	fingerprint = s.launcher.fingerprint(s.spec)
	return fingerprint, fingerprint != "" && fingerprint != current.fingerprint()
}

// Retire tells the plugin that another takes over: it goes on as it is until Stop,
// but when its process dies there is no next one. Finished is closed then.
func (s *Supervised) Retire(ctx context.Context) error {
	s.mu.Lock()
	s.retiring = true
	current := s.current
	s.mu.Unlock()
	if current == nil {
		s.end() // it would be started for nothing
		s.enter(PhaseStopped, func(state *State) { state.Reason = "another process took over" })
		return nil
	}
	s.enter(PhaseDraining, func(state *State) { state.Reason = "it serves its last instances, and gets no new ones" })
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	err := current.provider.Drain(ctx)
	// Old plugins, and those in other languages, need not know of it.
	if err == nil || errors.Is(err, &sdk.Error{Code: sdk.CodeNotSupported}) || !current.alive() {
		return nil
	}
	return fmt.Errorf("provider %q: drain: %w", s.spec.Label, err)
}

// Finished is closed when no process is left and none will come.
func (s *Supervised) Finished() <-chan struct{} { return s.finished }

// retired reports whether a death, or a start that failed, was the last.
func (s *Supervised) retired(cause error) bool {
	s.mu.Lock()
	retiring := s.retiring
	s.mu.Unlock()
	if !retiring {
		return false
	}
	s.enter(PhaseStopped, func(state *State) {
		state.Reason, state.LastError, state.Metrics = "its process ended while another took over", cause, nil
	})
	return true
}
