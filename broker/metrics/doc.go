// Package metrics counts what the broker does and shows it, with the metrics of
// the providers, in the text format of Prometheus, on a listener of its own: it
// is the operator's business and not that of tenants.
//
// Labels have few values: routes as patterns, codes, labels of providers. No
// tenant, session or instance is ever one.
package metrics
