package metrics

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

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

	executionTimes, creationTimes, waits, memory *prometheus.HistogramVec

	mu        sync.Mutex
	languages map[string]bool
}

var _ instance.Observer = (*Outcomes)(nil)

// NewOutcomes returns counters at 0, which Metrics.ShowOutcomes shows.
func NewOutcomes() *Outcomes {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	histogram := func(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: buckets}, labels)
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
		executionTimes: histogram("sandbox_broker_execution_duration_seconds",
			"Time from when code had its instance to its result, with the installation of its packages.",
			executionBuckets(), "provider", "language"),
		creationTimes: histogram("sandbox_broker_creation_duration_seconds",
			"Time that a provider took to answer a creation, by outcome.",
			creationBuckets(), "provider", "outcome"),
		waits: histogram("sandbox_broker_queue_wait_seconds",
			"Time that requests waited for what the quotas allow, by how that ended; refused at once is a wait of 0.",
			waitBuckets(), "outcome"),
		memory: histogram("sandbox_broker_execution_peak_memory_bytes",
			"The most memory that the code of an execution has used, where its provider says so.",
			prometheus.ExponentialBuckets(4<<20, 2, 11), "provider", "language"),
		languages: map[string]bool{},
	}
}

// ShowOutcomes adds the counters. It is called once at most.
func (m *Metrics) ShowOutcomes(o *Outcomes) {
	m.registry.MustRegister(o.executions, o.creations, o.failovers, o.executionTimes, o.creationTimes, o.waits, o.memory)
}

// executionBuckets reach from a copy of an interpreter that is ready to the longest
// time limits, in seconds.
func executionBuckets() []float64 {
	return []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600}
}

// creationBuckets reach from a sandbox out of a pool to a cloud that pulls an image, in
// seconds.
func creationBuckets() []float64 {
	return []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120}
}

// waitBuckets are in seconds.
func waitBuckets() []float64 {
	return []float64{.001, .01, .1, .5, 1, 2.5, 5, 10, 30, 60, 120}
}

// Executed implements instance.Observer.
func (o *Outcomes) Executed(ctx context.Context, e instance.ExecutionOutcome) {
	status, language := e.Status, o.language(e.Language)
	if status != instance.StatusError && !slices.Contains(sdk.Statuses(), status) {
		status = other
	}
	o.executions.WithLabelValues(e.Provider, language, string(status), known(e.Code)).Inc()
	observe(ctx, o.executionTimes.WithLabelValues(e.Provider, language), e.Took.Seconds())
	if e.PeakMemoryBytes > 0 {
		observe(ctx, o.memory.WithLabelValues(e.Provider, language), float64(e.PeakMemoryBytes))
	}
}

// Created implements instance.Observer.
func (o *Outcomes) Created(ctx context.Context, provider string, outcome instance.CreateOutcome, code sdk.Code, took time.Duration) {
	o.creations.WithLabelValues(provider, string(outcome), known(code)).Inc()
	observe(ctx, o.creationTimes.WithLabelValues(provider, string(outcome)), took.Seconds())
}

// Admitted implements instance.Observer.
func (o *Outcomes) Admitted(ctx context.Context, outcome instance.AdmitOutcome, waited time.Duration) {
	observe(ctx, o.waits.WithLabelValues(string(outcome)), waited.Seconds())
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
