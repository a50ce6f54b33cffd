package e2e_test

import (
	"fmt"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"
	"time"

	"gotest.tools/v3/assert"
	is "gotest.tools/v3/assert/cmp"
	"gotest.tools/v3/poll"

	"github.com/sandbox-broker/sandbox-broker/e2e/binaries"
	"github.com/sandbox-broker/sandbox-broker/e2e/harness"
	"github.com/sandbox-broker/sandbox-broker/e2e/tier"
)

var metricsAddress = regexp.MustCompile(`metrics: address=(\S+)`)

func TestThePoolIsSeenInTheMetrics(t *testing.T) {
	tier.Full(t)
	t.Parallel()
	b := harness.Start(t, harness.Options{
		Config: harness.Tenants + fmt.Sprintf("metrics {\n  listen = \"127.0.0.1:0\"\n}\nprovider \"self_managed\" {\n  runsc = %q\n  queue_timeout = \"4m\"\n  pool_size = 2\n}\n", binaries.Runsc(t)),
	})
	b.Execute(t, map[string]any{"language": "python", "code": "print(1)"})
	address := metricsAddress.FindStringSubmatch(b.Log())
	assert.Assert(t, address != nil, b.Log())
	client := &http.Client{Transport: &http.Transport{}, Timeout: 2 * time.Minute}
	defer client.CloseIdleConnections()
	poll.WaitOn(t, func(poll.LogT) poll.Result { // for the next health probe
		resp, err := client.Get("http://" + address[1] + "/metrics")
		assert.NilError(t, err)
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		assert.NilError(t, err)
		text := string(body)
		assert.Check(t, is.Contains(text, `sandbox_broker_provider_ready{provider="self_managed"} 1`))
		assert.Check(t, is.Contains(text, `sandbox_broker_requests_total{code="",method="POST",route="/api/v1/execute",status="200"} 1`))
		assert.Check(t, is.Contains(text, `sandbox_broker_executions_total{code="",language="python",provider="self_managed",status="succeeded"} 1`))
		assert.Check(t, is.Contains(text, `sandbox_broker_creations_total{code="",outcome="made",provider="self_managed"} 1`))
		const pool = "sandbox_provider_self_managed_pool_"
		for _, line := range []string{
			pool + `ready_sandboxes{provider="self_managed",template="python"} 1`,
			pool + `in_use_sandboxes{provider="self_managed"} 0`,
			pool + `make_failures_total{provider="self_managed"} 0`,
			pool + `retired_total{provider="self_managed",reason="unwell"} 0`,
		} {
			if !strings.Contains(text, line) {
				return poll.Continue("no %s in\n%s", line, text)
			}
		}
		if strings.Contains(text, pool+`requests_total{provider="self_managed",result="hit"} 0`) && strings.Contains(text, pool+`requests_total{provider="self_managed",result="wait"} 0`) {
			return poll.Continue("the request is not counted yet")
		}
		return poll.Success()
	}, poll.WithTimeout(2*time.Minute))
}
