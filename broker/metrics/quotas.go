package metrics

import "github.com/prometheus/client_golang/prometheus"

// Quota is what a tenant has used of its quotas at this moment.
type Quota struct {
	Tenant string
	// Used and Limits by the name of the limit, those without a limit left out
	// of Limits.
	Used, Limits map[string]float64
	// Refused counts refusals since the start by the name of the limit.
	Refused map[string]int64
	// Waiting requests.
	Waiting int
}

// MaxTenants bounds how many tenants have metrics of their own: more labels than
// that help nobody, and cost everybody.
const MaxTenants = 100

var (
	quotaUsed = prometheus.NewDesc("sandbox_broker_quota_used",
		"What a tenant has used of a quota, with what is reserved, in the unit of the quota's name.", []string{"tenant", "limit"}, nil)
	quotaLimit = prometheus.NewDesc("sandbox_broker_quota_limit",
		"The quota of a tenant; absent where there is none.", []string{"tenant", "limit"}, nil)
	quotaRefused = prometheus.NewDesc("sandbox_broker_quota_refusals_total",
		"What a tenant was refused, by the limit that stood in the way.", []string{"tenant", "limit"}, nil)
	quotaWaiting = prometheus.NewDesc("sandbox_broker_quota_waiting",
		"Requests of a tenant that wait for their turn.", []string{"tenant"}, nil)
)

// quotaCollector shows the quotas as they are when it is asked.
type quotaCollector struct{ quotas func(most int) []Quota }

// ShowQuotas adds those of the first MaxTenants tenants, by what the function
// returns whenever somebody looks. It is called once at most.
func (m *Metrics) ShowQuotas(quotas func(most int) []Quota) {
	m.registry.MustRegister(quotaCollector{quotas})
}

// Describe implements prometheus.Collector.
func (quotaCollector) Describe(out chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{quotaUsed, quotaLimit, quotaRefused, quotaWaiting} {
		out <- d
	}
}

// Collect implements prometheus.Collector.
func (c quotaCollector) Collect(out chan<- prometheus.Metric) {
	for _, q := range c.quotas(MaxTenants) {
		for limit, used := range q.Used {
			out <- prometheus.MustNewConstMetric(quotaUsed, prometheus.GaugeValue, used, q.Tenant, limit)
		}
		for limit, most := range q.Limits {
			out <- prometheus.MustNewConstMetric(quotaLimit, prometheus.GaugeValue, most, q.Tenant, limit)
		}
		for limit, n := range q.Refused {
			out <- prometheus.MustNewConstMetric(quotaRefused, prometheus.CounterValue, float64(n), q.Tenant, limit)
		}
		out <- prometheus.MustNewConstMetric(quotaWaiting, prometheus.GaugeValue, float64(q.Waiting), q.Tenant)
	}
}

var (
	queueWaiting = prometheus.NewDesc("sandbox_broker_queue_waiting_requests",
		"Requests of all tenants that wait for what the quotas allow, or for room at a provider.", nil, nil)
	providerCost = prometheus.NewDesc("sandbox_broker_provider_cost_total",
		"What the lives of instances have cost, by cost_per_second, since the broker's start.", []string{"provider"}, nil)
)

// ShowQueue adds how many requests wait, which is asked for whenever somebody looks.
func (m *Metrics) ShowQueue(waiting func() int) { m.registry.MustRegister(queueCollector{waiting}) }

type queueCollector struct{ waiting func() int }

// Describe implements prometheus.Collector.
func (queueCollector) Describe(out chan<- *prometheus.Desc) { out <- queueWaiting }

// Collect implements prometheus.Collector.
func (c queueCollector) Collect(out chan<- prometheus.Metric) {
	out <- prometheus.MustNewConstMetric(queueWaiting, prometheus.GaugeValue, float64(c.waiting()))
}

// ShowCosts adds what instances have cost, by the labels of their providers. It only
// grows, and is asked for whenever somebody looks.
func (m *Metrics) ShowCosts(spent func() map[string]float64) {
	m.registry.MustRegister(costCollector{spent})
}

type costCollector struct{ spent func() map[string]float64 }

// Describe implements prometheus.Collector.
func (costCollector) Describe(out chan<- *prometheus.Desc) { out <- providerCost }

// Collect implements prometheus.Collector.
func (c costCollector) Collect(out chan<- prometheus.Metric) {
	for provider, amount := range c.spent() {
		out <- prometheus.MustNewConstMetric(providerCost, prometheus.CounterValue, amount, provider)
	}
}
