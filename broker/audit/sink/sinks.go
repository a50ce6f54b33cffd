package sink

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/sandbox-broker/sandbox-broker/broker/background"
	"github.com/sandbox-broker/sandbox-broker/config"
)

// lastSendTimeout bounds what the sinks of the audit log still send when they end.
const lastSendTimeout = 3 * time.Second

// Set is the places where the audit log is sent, beside its files.
type Set struct {
	log    Log
	logger hclog.Logger
	tasks  *background.Group

	mu      sync.Mutex
	running map[string]runningSink // by name
}

type runningSink struct {
	*Follower
	settings config.Audit // those that make it
	end      context.CancelFunc
	ended    chan struct{}
}

// NewSet sends a log nowhere before Apply.
func NewSet(log Log, logger hclog.Logger) *Set {
	return &Set{log: log, logger: logger, tasks: background.NewGroup(logger), running: map[string]runningSink{}}
}

// Apply starts what the configuration asks for and ends what it does not. A sink that
// cannot be started is told of in the log: what it would send stays in the files.
func (s *Set) Apply(c config.Audit) {
	wanted := map[string]config.Audit{}
	if c.Syslog != "" {
		wanted["syslog"] = config.Audit{Syslog: c.Syslog}
	}
	if c.Webhook != "" {
		wanted["webhook"] = config.Audit{Webhook: c.Webhook, WebhookToken: c.WebhookToken}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, r := range s.running {
		if wanted[name] != r.settings {
			r.stop()
			delete(s.running, name)
		}
	}
	for name, settings := range wanted {
		if _, there := s.running[name]; there {
			continue
		}
		if err := s.start(name, settings); err != nil {
			s.logger.Error("the audit log is not sent", "sink", name, "error", err)
		}
	}
}

func (s *Set) start(name string, settings config.Audit) error {
	var sender Sender = NewWebhook(settings.Webhook, settings.WebhookToken)
	if settings.Syslog != "" {
		var err error
		if sender, err = NewSyslog(settings.Syslog); err != nil {
			return err
		}
	}
	f, err := NewFollower(name, s.log, sender, s.logger)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	r := runningSink{Follower: f, settings: settings, end: cancel, ended: make(chan struct{})}
	s.running[name] = r
	s.tasks.Go("send the audit log to the "+name, func() {
		defer close(r.ended)
		f.Run(ctx)
	})
	return nil
}

// stop lets a sink send what it can and ends it.
func (r runningSink) stop() {
	limit := time.AfterFunc(lastSendTimeout, r.end)
	defer limit.Stop()
	r.Stop()
	<-r.ended
	r.end()
}

// Behind is how many lines each has still to send.
func (s *Set) Behind() map[string]uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	lines := map[string]uint64{}
	for name, r := range s.running {
		lines[name] = r.Behind()
	}
	return lines
}

// Close ends all.
func (s *Set) Close() {
	s.Apply(config.Audit{})
	s.tasks.Wait()
}
