package metrics_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"

	"github.com/sandbox-broker/sandbox-broker/broker/metrics"
)

func TestTheEndOfTheCertificateIsShown(t *testing.T) {
	none := func() []metrics.Provider { return nil }
	_, text := get(t, http.MethodGet, serve(t, metrics.New(none, unchanged)))
	assert.Check(t, !strings.Contains(text, "sandbox_broker_tls"))
	_, text = get(t, http.MethodGet, serve(t, metrics.New(none, func() metrics.Configuration {
		return metrics.Configuration{CertificateEnds: time.Unix(1_800_000_000, 0)}
	})))
	assert.Check(t, is.Contains(text, "sandbox_broker_tls_certificate_end_timestamp_seconds 1.8e+09\n"))
}
