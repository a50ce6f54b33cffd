package metrics

import (
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sandbox-broker/sandbox-broker/broker/instance"
	"github.com/sandbox-broker/sandbox-broker/sdk"
)

const (
	// maxLanguages bounds how many languages have metrics of their own: what plugins
	// say they run may be another at each start.
	maxLanguages = 32
	// maxLanguage bounds the name of one, in bytes.
	maxLanguage = 64
	// other stands for what is above a bound, or is no word that there can be.
	other = "other"
)

// Outcomes count what becomes of executions and creations. It is an instance.Observer.
type Outcomes struct {
	executions, creations, failovers *prometheus.CounterVec

	mu        sync.Mutex
	languages map[string]bool
}

var _ instance.Observer = (*Outcomes)(nil)

// NewOutcomes returns counters at 0, which Metrics.ShowOutcomes shows.
func NewOutcomes() *Outcomes {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Outcomes{
		executions: counter("sandbox_broker_executions_total",
			"Executions that were begun and have ended. The status is error for those that came to no result, the code empty for those that have none.",
			"provider", "language", "status", "code"),
		creations: counter("sandbox_broker_creations_total",
			"Creations that providers were asked for, by outcome; unclear are those that may have made an instance.",
			"provider", "outcome", "code"),
		failovers: counter("sandbox_broker_failovers_total",
			"Providers that could not serve a request which another one has made an instance for, and why.",
			"from", "to", "code"),
		languages: map[string]bool{},
	}
}

// ShowOutcomes adds the counters. It is called once at most.
func (m *Metrics) ShowOutcomes(o *Outcomes) {
	m.registry.MustRegister(o.executions, o.creations, o.failovers)
}

// Executed implements instance.Observer.
func (o *Outcomes) Executed(provider string, language sdk.Language, status sdk.Status, code sdk.Code) {
	if status != instance.StatusError && !slices.Contains(sdk.Statuses(), status) {
		status = other
	}
	o.executions.WithLabelValues(provider, o.language(language), string(status), known(code)).Inc()
}

// Created implements instance.Observer.
func (o *Outcomes) Created(provider string, outcome instance.CreateOutcome, code sdk.Code) {
	o.creations.WithLabelValues(provider, string(outcome), known(code)).Inc()
}

// FailedOver implements instance.Observer.
func (o *Outcomes) FailedOver(from, to string, code sdk.Code) {
	o.failovers.WithLabelValues(from, to, known(code)).Inc()
}

// language is the value of the label, of which there are no more than maxLanguages.
func (o *Outcomes) language(language sdk.Language) string {
	name := strings.Clone(string(language))
	if len(name) > maxLanguage || strings.ToValidUTF8(name, "") != name {
		return other
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.languages[name] {
		if len(o.languages) == maxLanguages {
			return other
		}
		o.languages[name] = true
	}
	return name
}

// known is the code, if it is one.
func known(code sdk.Code) string {
	if code != "" && !code.Known() {
		return other
	}
	return string(code)
}
