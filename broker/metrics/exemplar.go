package metrics

import (
	"context"

	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"

	"github.com/sandbox-broker/sandbox-broker/broker/origin"
)

// What an exemplar has the IDs of a request and of its trace by, if that is sent. Together
// they have less than the 128 characters that the format allows.
const (
	exemplarRequest = "request_id"
	exemplarTrace   = "trace_id"
)

// observe counts a value. The request that the context is of becomes the example of its
// bucket, which has one at a time: what is there does not grow with the requests.
func observe(ctx context.Context, to prometheus.Observer, value float64) {
	id := origin.Of(ctx).RequestID
	exemplars, ok := to.(prometheus.ExemplarObserver)
	if id == "" || !ok {
		to.Observe(value)
		return
	}
	labels := prometheus.Labels{exemplarRequest: id}
	if s := trace.SpanContextFromContext(ctx); s.IsSampled() {
		labels[exemplarTrace] = s.TraceID().String()
	}
	exemplars.ObserveWithExemplar(value, labels)
}
