package pluginhost

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// SuperviseOptions tune the supervision of one provider; only Logger is
// required.
type SuperviseOptions struct {
	// OnReady is called after each successful Configure, before the provider
	// is handed to anybody: the place to compare its instances with ours. An
	// error counts as a failed start.
	OnReady func(ctx context.Context, label string, provider sdk.Provider) error
	// First is a process that was launched already, to read its schema. It
	// belongs to the Supervised from here on.
	First *Process

	// ConfigureTimeout bounds Configure, OnReadyTimeout OnReady; both
	// default to 30 s.
	ConfigureTimeout, OnReadyTimeout time.Duration
	// HealthInterval is the pause between health probes, 5 s by default;
	// each may take HealthTimeout, 5 s by default. A plugin that lets
	// HealthMisses probes in a row pass unanswered, 3 by default, is killed.
	HealthInterval, HealthTimeout time.Duration
	HealthMisses                  int
	// FileInterval is how often it is looked, between two processes, whether the file of
	// the plugin is another by now; 2 s by default.
	FileInterval time.Duration
	// Backoff between restarts; its zero value stands for one that ends at
	// 5 s and, after five failures, at 30 s.
	Backoff Backoff
	Logger  hclog.Logger
}

// Supervised keeps one configured provider running until Stop.
type Supervised struct {
	launcher  *Launcher
	spec      Spec
	configure sdk.ConfigureRequest // touched by the one goroutine that runs processes
	triedFile string               // of the last process; touched by the same
	options   SuperviseOptions

	life     context.Context // ends with Stop
	end      context.CancelFunc
	finished chan struct{}
	tried    chan struct{} // closed when the first attempt is over

	mu       sync.Mutex
	state    State
	changed  chan struct{} // closed and replaced at each change of state
	current  *Process      // nil while none is ready
	latest   sdk.Description
	probed   bool // current has answered a health probe
	retiring bool // the next death is the end
	everUp   bool
	firstErr error
	nextTry  time.Time
	stopping context.Context // given to Stop
}

// Supervise starts a provider and keeps it running. It returns at once; Started
// waits for the first attempt, Provider for a provider that is ready.
func Supervise(launcher *Launcher, spec Spec, configure sdk.ConfigureRequest, options SuperviseOptions) *Supervised {
	if options.Backoff == (Backoff{}) {
		options.Backoff = defaultBackoff()
	}
	for value, standard := range map[*time.Duration]time.Duration{
		&options.ConfigureTimeout: 30 * time.Second,
		&options.OnReadyTimeout:   30 * time.Second,
		&options.HealthInterval:   5 * time.Second,
		&options.FileInterval:     2 * time.Second,
		&options.HealthTimeout:    5 * time.Second,
	} {
		if *value == 0 {
			*value = standard
		}
	}
	if options.HealthMisses == 0 {
		options.HealthMisses = 3
	}
	life, end := context.WithCancel(context.Background())
	s := &Supervised{
		launcher: launcher, spec: spec, configure: configure, options: options,
		life: life, end: end,
		finished: make(chan struct{}), tried: make(chan struct{}), changed: make(chan struct{}),
		state: State{Label: spec.Label, Phase: PhaseStarting, Reason: "starting", Since: time.Now()},
	}
	if options.First != nil {
		s.latest = options.First.Provider().Describe()
	}
	go s.run()
	return s
}

// Label returns the provider's name in the configuration.
func (s *Supervised) Label() string { return s.spec.Label }

// Plugin returns the name of the executable behind it.
func (s *Supervised) Plugin() string { return s.spec.Plugin }

// Description returns what the last plugin that started said about itself; it
// is empty before that.
func (s *Supervised) Description() sdk.Description {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.latest
}

// Started waits until the first attempt to start and configure the provider is
// over and returns its error. Supervision goes on in any case.
func (s *Supervised) Started(ctx context.Context) error {
	select {
	case <-s.tried: // whatever has become of ctx
		return s.firstErr
	default:
	}
	select {
	case <-s.tried:
		return s.firstErr
	case <-ctx.Done():
		return fmt.Errorf("provider %q: %w", s.spec.Label, ctx.Err())
	}
}

// Provider returns the provider when it is ready, and waits until ctx ends for
// one that starts or restarts. It returns CodeNotInitialized for a provider that
// has never been ready and CodeUnavailable for one that is down.
func (s *Supervised) Provider(ctx context.Context) (sdk.Provider, error) {
	for {
		s.mu.Lock()
		current, changed, phase := s.current, s.changed, s.state.Phase
		s.mu.Unlock()
		switch {
		case phase == PhaseUnavailable || phase == PhaseStopped:
			return nil, s.notReady(nil)
		case current != nil && current.alive():
			return current.Provider(), nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, s.notReady(ctx.Err())
		}
	}
}

// Stop ends supervision and the plugin, in order while ctx lasts and by force
// after that. It returns when nothing is left.
func (s *Supervised) Stop(ctx context.Context) {
	s.mu.Lock()
	if s.stopping == nil {
		s.stopping = ctx
	}
	s.mu.Unlock()
	s.enter(PhaseStopped, func(state *State) { state.Reason = "stopped" })
	s.end()
	<-s.finished
}

// run is the life of the provider: one process after the other.
func (s *Supervised) run() {
	defer close(s.finished)
	deaths := 0 // of processes that had done work
	for failures, first := 0, true; ; first = false {
		process, err := s.bringUp(first)
		if first {
			s.firstErr = err
			close(s.tried)
		}
		if err == nil {
			up := time.Now()
			err = s.watch(process)
			process.Stop(s.stopContext()) // a dead one is only waited for
			ran, worked := time.Since(up), process.worked.Load()
			failures = s.options.Backoff.forgive(failures, ran, worked)
			deaths = s.options.Backoff.repeated(deaths, ran, worked)
		}
		if s.life.Err() != nil || s.retired(err) {
			return
		}
		failures++
		if sdk.CodeOf(err) == sdk.CodeInvalidConfig {
			failures = max(failures, s.options.Backoff.Opens) // the same again would be refused again
		}
		pause := s.options.Backoff.pause(failures)
		if penalty := s.options.Backoff.penalty(deaths); penalty > pause {
			pause = penalty
			s.options.Logger.Warn("the plugin works and is ended again and again", "provider", s.spec.Label, "deaths", deaths, "next_try", pause.Round(time.Millisecond))
		}
		s.down(err, failures, pause)
		if s.rest(pause) {
			failures, deaths = 0, 0 // of another file
		}
		if s.retired(err) {
			return
		}
	}
}

// rest is the pause between two processes. It is over at once when the file of the plugin
// is another than the one that was tried: somebody has mended it. A file counts when it
// was the same twice, since it may be in the middle of being copied.
func (s *Supervised) rest(pause time.Duration) (mended bool) {
	over, look := time.NewTimer(pause), time.NewTicker(s.options.FileInterval)
	defer over.Stop()
	defer look.Stop()
	seen := s.triedFile
	for {
		select {
		case <-over.C:
			return false
		case <-s.life.Done():
			return false
		case <-look.C:
		}
		file := s.launcher.fingerprint(s.spec)
		if file != "" && file != s.triedFile && file == seen {
			s.options.Logger.Info("the plugin's file has changed", "provider", s.spec.Label)
			return true
		}
		seen = file
	}
}

// bringUp starts and configures a process. On success it is current.
func (s *Supervised) bringUp(first bool) (*Process, error) {
	process, err := s.options.First, error(nil)
	if first && process != nil {
		s.triedFile = process.fingerprint()
	} else {
		s.triedFile = s.launcher.fingerprint(s.spec)
	}
	if !first || process == nil {
		process, err = s.launcher.Launch(s.life, s.spec)
	}
	if err != nil {
		return nil, err
	}
	provider := process.Provider()
	s.mu.Lock()
	s.latest = provider.Describe()
	s.mu.Unlock()
	if err := s.prepare(provider); err != nil {
		if !process.alive() {
			<-process.done
			err = fmt.Errorf("%w (%w)", err, process.Err())
		}
		process.Stop(s.stopContext())
		return nil, err
	}
	s.mu.Lock()
	again := s.everUp
	s.current, s.everUp, s.probed = process, true, false
	s.mu.Unlock()
	s.enter(PhaseReady, func(state *State) {
		state.Reason, state.Details = "", nil
		if again {
			state.Restarts++
		}
	})
	s.options.Logger.Info("provider ready", "provider", s.spec.Label, "plugin", s.spec.Plugin, "pid", process.PID())
	return process, nil
}

func (s *Supervised) prepare(provider sdk.Provider) error {
	ctx, cancel := context.WithTimeout(s.life, s.options.ConfigureTimeout)
	defer cancel()
	if err := provider.Configure(ctx, s.configure); err != nil {
		return inTime(ctx, err, s.spec.Label, "did not accept its configuration within", s.options.ConfigureTimeout)
	}
	s.configure.AbandonedDirs = nil // freed once, and the names may be somebody's again
	if s.options.OnReady == nil {
		return nil
	}
	ctx, cancel = context.WithTimeout(s.life, s.options.OnReadyTimeout)
	defer cancel()
	err := s.options.OnReady(ctx, s.spec.Label, provider)
	return inTime(ctx, err, s.spec.Label, "was not reconciled within", s.options.OnReadyTimeout)
}

// inTime words the end of a deadline of ours.
func inTime(ctx context.Context, err error, label, what string, limit time.Duration) error {
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
		return sdk.Errorf(sdk.CodeUnavailable, "provider %q: %s %v", label, what, limit)
	}
	return named(label, err)
}

// down records that there is no process now.
func (s *Supervised) down(err error, failures int, pause time.Duration) {
	s.mu.Lock()
	s.current = nil
	s.nextTry = time.Now().Add(pause)
	phase := PhaseStarting
	switch {
	case failures >= s.options.Backoff.Opens, pause > 2*s.options.Backoff.Max: // nobody is to wait for it
		phase = PhaseUnavailable
	case s.everUp:
		phase = PhaseRestarting
	}
	s.mu.Unlock()
	reason := reasonOf(err)
	if sdk.CodeOf(err) == sdk.CodeInvalidConfig {
		// It may name files of this machine. Before the broker is up it is told
		// as a mistake in the configuration.
		reason = "its configuration is refused; the log of the broker says why"
	}
	s.enter(phase, func(state *State) {
		state.Reason, state.LastError, state.FailedAt, state.Metrics = reason, err, time.Now(), nil
	})
	fields := []any{"provider", s.spec.Label, "failures", failures, "next_try", pause.Round(time.Millisecond), "error", err}
	if stderr := Stderr(err); stderr != "" {
		fields = append(fields, "stderr", stderr)
	}
	s.options.Logger.Error("provider down", fields...)
}

// notReady is the error of who asks now.
func (s *Supervised) notReady(cause error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	code := sdk.CodeUnavailable
	if !s.everUp {
		code = sdk.CodeNotInitialized
	}
	// The reason names the provider already when it comes from one of its
	// errors.
	e := sdk.Errorf(code, "is %s: %s", s.state.Phase, trimLabel(s.spec.Label, s.state.Reason))
	if s.state.Phase == PhaseStopped || s.state.Reason == string(s.state.Phase) {
		e = sdk.Errorf(code, "is %s", s.state.Phase)
	}
	if cause != nil {
		e = sdk.Errorf(code, "%s; waited in vain: %w", e.Message, cause)
	}
	if wait := time.Until(s.nextTry); wait > 0 {
		e.RetryAfter = wait.Round(time.Second)
	}
	return named(s.spec.Label, e)
}

// stopContext is what bounds an orderly end of a process: that of Stop, or while
// nobody has asked to stop, the time until somebody does.
func (s *Supervised) stopContext() context.Context {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopping != nil {
		return s.stopping
	}
	return s.life
}
