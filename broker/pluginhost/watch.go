package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk/wire"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// watch probes a ready process until it dies, hangs or is no longer wanted. It
// returns why it is over.
func (s *Supervised) watch(process *Process) error {
	provider := process.Provider()
	ctx, cancel := context.WithCancel(s.life)
	var telling sync.WaitGroup
	telling.Go(func() { s.keepTellingLease(ctx, process) })
	defer telling.Wait()
	defer cancel()
	next := time.NewTimer(0)
	defer next.Stop()
	for misses := 0; ; {
		select {
		case <-s.life.Done():
			return nil
		case <-process.runner.dead:
			s.enter(PhaseRestarting, func(state *State) { state.Reason = "the plugin ended" })
			<-process.done
			return process.Err()
		case <-next.C:
		}
		switch missed := s.probe(provider); {
		case !missed:
			misses = 0
		case process.alive():
			misses++
		}
		if misses >= s.options.HealthMisses {
			process.runner.kill()
			<-process.done
			return &ExitError{
				Label:  s.spec.Label,
				Status: fmt.Sprintf("did not answer %d health probes and was killed", misses),
				Stderr: process.runner.lastStderr(),
			}
		}
		next.Reset(s.options.HealthInterval)
	}
}

// probe asks for health once and reports whether no answer came in time.
func (s *Supervised) probe(provider sdk.Provider) (missed bool) {
	ctx, cancel := context.WithTimeout(s.life, s.options.HealthTimeout)
	defer cancel()
	health, err := provider.Health(ctx)
	phase, reason := PhaseReady, ""
	switch {
	case s.life.Err() != nil:
		return false
	case errors.Is(err, context.DeadlineExceeded):
		missed = true
		phase, reason = PhaseUnhealthy, fmt.Sprintf("did not answer a health probe within %v", s.options.HealthTimeout)
	case errors.Is(err, wire.ErrPluginGone):
		missed = true // or dead, which watch looks for next
		phase, reason = PhaseUnhealthy, "the connection to the plugin is lost"
	case errors.Is(err, wire.ErrStreamReset), errors.Is(err, context.Canceled):
		missed = true
		phase, reason = PhaseUnhealthy, "breaks off its health probes"
	case err != nil:
		phase, reason = PhaseUnhealthy, trimLabel(s.spec.Label, reasonOf(err))
	case !health.Healthy:
		phase, reason = PhaseUnhealthy, health.Reason
		if reason == "" {
			reason = "says that it is not healthy"
		}
	}
	s.mu.Lock()
	s.probed = true
	s.mu.Unlock()
	s.enter(phase, func(state *State) {
		state.Reason = reason
		if err == nil {
			state.Details, state.Metrics, state.ProbedAt = health.Details, health.Metrics, time.Now()
		}
	})
	return missed
}

// Stderr returns the plugin's last words that State.LastError carries, at most
// 64 KiB, without the secrets of its settings.
func Stderr(err error) string {
	var exit *ExitError
	if errors.As(err, &exit) {
		return exit.Stderr
	}
	var launch *LaunchError
	if errors.As(err, &launch) {
		return launch.Stderr
	}
	return ""
}
