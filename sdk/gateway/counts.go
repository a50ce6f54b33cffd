package gateway

import (
	"sync"

	"github.com/sandbox-broker/sandbox-broker/sdk"
)

// counts are what has become of connections, for the operator.
type counts struct {
	mu             sync.Mutex
	verdicts       map[sdk.NetworkVerdict]int64
	sent, received int64
}

func (n *counts) add(c sdk.NetworkConnection) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.verdicts == nil {
		n.verdicts = map[sdk.NetworkVerdict]int64{}
	}
	n.verdicts[c.Verdict]++
	n.sent += c.Sent
	n.received += c.Received
}

// Metrics are what the instances of the provider did with their networks, for sdk.Health.
func (g *Gateway) Metrics() []sdk.Metric {
	g.counts.mu.Lock()
	defer g.counts.mu.Unlock()
	var metrics []sdk.Metric
	for _, verdict := range []sdk.NetworkVerdict{sdk.NetworkAllowed, sdk.NetworkRefused, sdk.NetworkCut} {
		metrics = append(metrics, sdk.Metric{
			Name: "network_connections_total", Help: "Connections out of instances, and requests that were read, which have ended or were refused.",
			Kind: sdk.MetricCounter, Labels: map[string]string{"verdict": string(verdict)}, Value: float64(g.counts.verdicts[verdict]),
		})
	}
	for way, n := range map[string]int64{"sent": g.counts.sent, "received": g.counts.received} {
		metrics = append(metrics, sdk.Metric{
			Name: "network_bytes_total", Help: "Bytes of connections out of instances that have ended; of requests those of their bodies.",
			Kind: sdk.MetricCounter, Labels: map[string]string{"way": way}, Value: float64(n),
		})
	}
	return metrics
}
