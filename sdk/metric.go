package sdk

// Metric is one number of a provider's own, as it is at the moment of the
// health probe. The broker shows it as sandbox_provider_<plugin>_<name> with the
// label provider, in the text format of Prometheus.
type Metric struct {
	// Name is [a-z][a-z0-9_]{0,62}. By custom it ends in the unit, in plural, and
	// that of a counter in _total: wait_seconds_total.
	Name string
	// Help says in one sentence what is counted; the same for all metrics of
	// that name.
	Help string
	// Kind is the same for all metrics of that name.
	Kind MetricKind
	// Labels tell metrics of one name apart. Their values must be few and not
	// grow with use: templates, but not instances or tenants.
	Labels map[string]string
	// Value is finite, and not negative for a counter.
	Value float64
}

// MetricKind says how a metric behaves.
type MetricKind string

// The kinds of metrics.
const (
	MetricCounter MetricKind = "counter" // only grows, from the start of the process
	MetricGauge   MetricKind = "gauge"   // goes up and down
)

// Metrics by which brokers that are several decide where a new session goes.
const (
	// MetricReadySandboxes is how many sandboxes wait to be used, one for each template, in
	// the label MetricLabelTemplate.
	MetricReadySandboxes = "pool_ready_sandboxes"
	// MetricMaxSandboxes is how many there may be at a time on this machine, those in use too.
	// A provider without it has no bound of the machine's, as in clouds.
	MetricMaxSandboxes = "pool_max_sandboxes"
	// MetricLabelTemplate names a template.
	MetricLabelTemplate = "template"
)

// Bounds on metrics.
const (
	// MaxMetrics is how many a provider may have, over all names and labels.
	MaxMetrics = 200
	// MaxMetricLabels is how many labels a metric may have.
	MaxMetricLabels = 5
	// MaxMetricHelp and MaxMetricLabelValue are in bytes.
	MaxMetricHelp, MaxMetricLabelValue = 300, 100
)
