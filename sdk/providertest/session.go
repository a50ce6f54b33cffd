package providertest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sandbox-broker/sandbox-broker/sdk"
	"github.com/sandbox-broker/sandbox-broker/sdk/wire"
)

// The limits that the suite itself sets, before patience.
const (
	// startTimeout and configureTimeout are the broker's own.
	startTimeout     = 10 * time.Second
	configureTimeout = 30 * time.Second
	// healthTimeout is the broker's for one probe.
	healthTimeout = 5 * time.Second
	// readyTimeout is how long a provider may take to be healthy.
	readyTimeout = 60 * time.Second
	// stopTimeout bounds the end of a process.
	stopTimeout = 15 * time.Second
)

// label is what the suite calls the provider block.
const label = "verified"

// session is a process of the provider.
type session struct {
	*wire.Client
	plugin   *Plugin
	owner    *suite
	brokerID string
	stateDir string
	stopped  bool
}

// launch starts a process and has it describe itself.
func (s *suite) launch(ctx context.Context, brokerID, state string) (*session, error) {
	dir, err := s.stateDir(state)
	if err != nil {
		return nil, err
	}
	starting, cancel := context.WithTimeout(ctx, s.within(startTimeout))
	defer cancel()
	plugin, err := s.open(starting)
	if err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	started := &session{plugin: plugin, owner: s, brokerID: brokerID, stateDir: dir}
	if started.Client, err = wire.NewClient(starting, plugin.Conn); err != nil {
		started.stop(ctx)
		return nil, err
	}
	if s.described == nil {
		d := started.Describe()
		s.described = &d
	}
	return started, nil
}

// start launches a process, gives it the settings and waits until it is healthy.
func (s *suite) start(ctx context.Context, brokerID, state string) (*session, error) {
	started, err := s.launch(ctx, brokerID, state)
	if err != nil {
		return nil, err
	}
	settings, err := s.resolve(started.Describe().Schema)
	if err == nil {
		err = started.configure(ctx, settings)
	}
	if err == nil {
		err = started.awaitHealth(ctx)
	}
	if err != nil {
		started.stop(context.WithoutCancel(ctx))
		return nil, err
	}
	return started, nil
}

// resolve checks the given settings against the provider's schema.
func (s *suite) resolve(schema sdk.Schema) (sdk.Settings, error) {
	settings, mistakes := schema.Resolve(s.given)
	if len(mistakes) > 0 {
		return nil, fmt.Errorf("the settings for this run: %w", mistakes[0])
	}
	return settings, nil
}

func (s *session) configure(ctx context.Context, settings sdk.Settings) error {
	ctx, cancel := context.WithTimeout(ctx, s.owner.within(configureTimeout))
	defer cancel()
	err := s.Configure(ctx, sdk.ConfigureRequest{Label: label, BrokerID: s.brokerID, StateDir: s.stateDir, Settings: settings})
	if err != nil {
		return fmt.Errorf("configure: %w", err)
	}
	return nil
}

// awaitHealth asks until the provider is healthy.
func (s *session) awaitHealth(ctx context.Context) error {
	return s.owner.eventually(ctx, readyTimeout, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, s.owner.within(healthTimeout))
		defer cancel()
		health, err := s.Health(ctx)
		if err != nil {
			return fmt.Errorf("health: %w", err)
		}
		if !health.Healthy {
			return fmt.Errorf("not healthy: %s", health.Reason)
		}
		return nil
	})
}

// isGone reports whether the process has ended.
func (s *session) isGone() bool {
	ctx, cancel := context.WithTimeout(context.Background(), s.owner.within(healthTimeout))
	defer cancel()
	_, err := s.Health(ctx)
	return errors.Is(err, wire.ErrPluginGone)
}

// stop ends the process in order. A second call does nothing.
func (s *session) stop(ctx context.Context) {
	if s.stopped {
		return
	}
	s.stopped = true
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.owner.within(stopTimeout))
	defer cancel()
	_ = s.plugin.Stop(ctx)
}

// retryInterval is the pause between two tries of eventually.
const retryInterval = 50 * time.Millisecond

// eventually tries until it succeeds, and returns the last error at the limit.
func (s *suite) eventually(ctx context.Context, limit time.Duration, try func(context.Context) error) error {
	limit = s.within(limit)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	ticker := time.NewTicker(retryInterval)
	defer ticker.Stop()
	for {
		err := try(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("still so after %v: %w", limit, err)
		case <-ticker.C:
		}
	}
}
